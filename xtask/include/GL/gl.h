/* The OpenGL types in CUDA's signatures (Khronos: GLuint and GLenum are 32 bits wide). */
#pragma once
typedef unsigned int GLuint;
typedef unsigned int GLenum;
