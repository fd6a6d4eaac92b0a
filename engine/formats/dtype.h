/* dtype: element types of tensors, their sizes, and their values as F32.
 *
 * Names are those of the safetensors format. Pointers may have any alignment:
 * data in a safetensors file starts at any byte. Any thread. */
#ifndef FORMATS_DTYPE_H
#define FORMATS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_F8_E4M3, /* the "fn" kind: no infinities, 0x7F and 0xFF are NaN */
    DTYPE_F8_E5M2,
    DTYPE_F64,
    DTYPE_I8,
    DTYPE_U8,
    DTYPE_I16,
    DTYPE_U16,
    DTYPE_I32,
    DTYPE_U32,
    DTYPE_I64,
    DTYPE_U64,
    DTYPE_BOOL,
    DTYPE_OTHER, /* known to the format, sized in bits; read by nobody here */
};

const char *dtype_name(enum dtype d);
bool dtype_parse(enum dtype *out, uint32_t *bits, const char *name); /* false: unknown name */
uint32_t dtype_size(enum dtype d); /* bytes an element; 0 for DTYPE_OTHER */

/* n elements at src (any alignment) to F32. Types F32, F16, BF16 and F8_E4M3 (without
 * its block scale); false for others. */
bool dtype_to_f32(float *out, const void *src, enum dtype d, size_t n);
/* Round to nearest even. */
uint16_t dtype_bf16_from_f32(float x);
float dtype_bf16_to_f32(uint16_t x);
float dtype_f16_to_f32(uint16_t x);
float dtype_f8_e4m3_to_f32(uint8_t x); /* NaN for 0x7F and 0xFF */

/* Index of the first NaN code in n E4M3 bytes, or n when there is none. Vectorised by
 * the compiler; meant to cost nothing beside the read that brought the bytes. */
size_t dtype_f8_find_nan(const void *bytes, size_t n);

#endif
