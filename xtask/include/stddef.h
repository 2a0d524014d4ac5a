/* What the bound headers need of the C library, and no more: bindgen then answers the same on every host. */
#pragma once
typedef __SIZE_TYPE__ size_t;
#ifndef __cplusplus
typedef __WCHAR_TYPE__ wchar_t;
#endif
#define NULL ((void *)0)
