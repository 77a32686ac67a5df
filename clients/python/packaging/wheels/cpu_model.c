/* Says which instructions the processor has, to functions that are compiled twice (kernels/clones.h).
 *
 * The names and the layout are those of libgcc. Zig's library has the names, but its function does
 * nothing, so that all programs would run the slower version. Programs are linked with this one
 * before Zig's. Only AVX2 is looked for: no other feature is used. */
#include <cpuid.h>

#define FEATURE_AVX2 10
#define VECTORS_SAVED 6u /* bits of XCR0: the system saves 128 and 256 bits of each vector */

int __cpu_indicator_init(void);

struct {
    unsigned vendor, type, subtype, features;
} __cpu_model;

static unsigned read_xcr0(void)
{
    unsigned low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Is called while a program is loaded, before other constructors and before relocation ends. */
__attribute__((constructor(101))) int __cpu_indicator_init(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    if ((read_xcr0() & VECTORS_SAVED) != VECTORS_SAVED || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    if (b & bit_AVX2)
        __cpu_model.features |= 1u << FEATURE_AVX2;
    return 0;
}
