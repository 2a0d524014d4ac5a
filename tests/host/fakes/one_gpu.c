/* A driver of CUDA 12.2 with one GPU, and little that it can do. */

int cuDriverGetVersion(int *version) {
    *version = 12020;
    return 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

/* Codes that the crates also give where there is no function to call. */

int cuDeviceTotalMem_v2(unsigned long *bytes, int device) {
    (void)bytes;
    (void)device;
    return 500; /* CUDA_ERROR_NOT_FOUND */
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)value;
    (void)attribute;
    (void)device;
    return 3; /* CUDA_ERROR_NOT_INITIALIZED */
}
