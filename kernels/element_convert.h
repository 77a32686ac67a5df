/* Converts elements to and from double and float, with one rounding to nearest even. Host code.
 * Addresses may be unaligned.
 *
 * All source types are exact in double, except i64 and u64 beyond 2^53. So a value that is computed
 * in double and stored by trajd_element_store is rounded once. f16 and bf16 are rounded from double
 * directly, because a step through float would round twice. */
#ifndef TRAJD_KERNELS_ELEMENT_CONVERT_H
#define TRAJD_KERNELS_ELEMENT_CONVERT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "proto/dtype.h"

static inline bool trajd_dtype_is_float(enum trajd_dtype type)
{
    return type >= TRAJD_F16 && type <= TRAJD_F64;
}

static inline double trajd_f16_to_double(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    int mantissa = bits & 1023;
    double magnitude;

    if (exponent == 31)
        magnitude = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = mantissa * 0x1p-24;
    else {
        uint64_t wide = (uint64_t)(exponent - 15 + 1023) << 52 | (uint64_t)mantissa << 42;
        memcpy(&magnitude, &wide, sizeof wide);
    }
    return bits >> 15 ? -magnitude : magnitude;
}

static inline float trajd_bf16_to_float(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Rounds to a 16-bit float with `mantissa_bits` stored mantissa bits, where exponent field 1 means
 * 2^(1 - bias). */
static inline uint16_t trajd_narrow(double value, int mantissa_bits, int bias)
{
    const uint16_t infinity = (uint16_t)(0x7fff >> mantissa_bits << mantissa_bits);
    const int drop = 52 - mantissa_bits;
    uint64_t wide;
    uint16_t sign;

    memcpy(&wide, &value, sizeof wide);
    sign = (uint16_t)(wide >> 48 & 0x8000);
    wide &= INT64_MAX;
    if (isnan(value))
        return sign | infinity | (uint16_t)(1 << (mantissa_bits - 1));
    /* below the smallest normal number: a count of the smallest step */
    if (wide < (uint64_t)(1024 - bias) << 52)
        return sign | (uint16_t)nearbyint(ldexp(fabs(value), bias - 1 + mantissa_bits));
    wide += (UINT64_C(1) << (drop - 1)) - 1 + (wide >> drop & 1);
    wide = (wide >> drop) - ((uint64_t)(1023 - bias) << mantissa_bits);
    return sign | (wide < infinity ? (uint16_t)wide : infinity);
}

static inline uint16_t trajd_f16_from_double(double value)
{
    return trajd_narrow(value, 10, 15);
}

static inline uint16_t trajd_bf16_from_double(double value)
{
    return trajd_narrow(value, 7, 127);
}

/* Loads an element. Uses memcpy because the address may be unaligned. */
static inline double trajd_element_load(enum trajd_dtype type, const void *address)
{
    union {
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } e;

    switch (type) {
    case TRAJD_F16:
        memcpy(&e, address, 2);
        return trajd_f16_to_double(e.u16);
    case TRAJD_BF16:
        memcpy(&e, address, 2);
        return (double)trajd_bf16_to_float(e.u16);
    case TRAJD_F32:
        memcpy(&e, address, 4);
        return (double)e.f32;
    case TRAJD_F64:
        memcpy(&e, address, 8);
        return e.f64;
    case TRAJD_I8:
        return *(const int8_t *)address;
    case TRAJD_I16:
        memcpy(&e, address, 2);
        return e.i16;
    case TRAJD_I32:
        memcpy(&e, address, 4);
        return e.i32;
    case TRAJD_I64:
        memcpy(&e, address, 8);
        return (double)e.i64;
    case TRAJD_U16:
        memcpy(&e, address, 2);
        return e.u16;
    case TRAJD_U32:
        memcpy(&e, address, 4);
        return e.u32;
    case TRAJD_U64:
        memcpy(&e, address, 8);
        return (double)e.u64;
    default:
        return *(const uint8_t *)address; /* u8, bool */
    }
}

/* Stores the value as one of the floating-point types. */
static inline void trajd_element_store(enum trajd_dtype type, void *address, double value)
{
    uint16_t half;
    float single = (float)value;

    switch (type) {
    case TRAJD_F64:
        memcpy(address, &value, sizeof value);
        break;
    case TRAJD_F32:
        memcpy(address, &single, sizeof single);
        break;
    default:
        half = type == TRAJD_F16 ? trajd_f16_from_double(value) : trajd_bf16_from_double(value);
        memcpy(address, &half, sizeof half);
    }
}

#endif
