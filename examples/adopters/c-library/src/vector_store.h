/* A store of vectors in device memory. Vectors are appended through a ring of pinned memory, so that the
 * caller waits only if the ring is full, and the memory grows as needed.
 *
 * A store is used by one thread at a time. A function that fails returns the code of the driver and
 * leaves the store as it was. */

#ifndef VECTOR_STORE_H
#define VECTOR_STORE_H

#include "driver.h"

typedef struct vector_store vector_store;

/* Opens a store of vectors with `dimension` elements on a device. */
CUresult vector_store_open(vector_store **store, int device, size_t dimension);

/* Waits for all copies and frees the store. Does nothing for NULL. */
void vector_store_close(vector_store *store);

/* Returns the number of vectors. */
size_t vector_store_length(const vector_store *store);

/* Appends a vector. The elements are copied before the function returns. */
CUresult vector_store_append(vector_store *store, const float *vector);

/* Waits for all copies, and reads the vector with this index. */
CUresult vector_store_read(vector_store *store, size_t index, float *vector);

#endif
