/* A driver that is too broken to tell its version. */

int cuDriverGetVersion(int *version) {
    (void)version;
    return 999; /* CUDA_ERROR_UNKNOWN */
}

int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}
