/* See stddef.h. */
#pragma once
#include <stddef.h>
