/* A driver of CUDA 12.2 on a machine without a GPU. */

int cuDriverGetVersion(int *version) {
    *version = 12020;
    return 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    return 100; /* CUDA_ERROR_NO_DEVICE */
}
