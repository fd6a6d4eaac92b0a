#include "util/region.h"

#include "util/err.h"
#include "util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

#define HUGE_PAGE (2 * MIB)

uint64_t region_size(uint64_t size, enum region_pages pages)
{
    return size_up(size, pages == REGION_HUGE ? HUGE_PAGE : 4 * KIB);
}

/* Kernels before 5.14 lack the advice; writing a byte of each page does the same. */
static int populate(char *base, uint64_t size, struct err *err)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(base, size, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return err_errno(err, "take %" PRIu64 " bytes of memory", size);
#endif
    for (uint64_t at = 0; at < size; at += 4 * KIB)
        ((volatile char *)base)[at] = 0;
    return 0;
}

int region_open(struct region *out, uint64_t size, enum region_pages pages, struct err *err)
{
    uint64_t want = region_size(size, pages), mapped;

    if (want < size || !size_add(&mapped, want, HUGE_PAGE))
        return err_set(err, ERR_NOMEM, "a region of %" PRIu64 " bytes", size);
    /* Map one huge page more, then cut both ends off so that the rest is aligned. */
    char *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return err_errno(err, "map %" PRIu64 " bytes", want);
    char *base = (char *)size_up((uint64_t)(uintptr_t)at, HUGE_PAGE);
    if (base > at)
        munmap(at, (size_t)(base - at));
    if (at + mapped > base + want)
        munmap(base + want, (size_t)(at + mapped - (base + want)));

    *out = (struct region){ .base = base, .size = want };
    if (want == 0)
        return 0;
    /* Advice only: a kernel without huge pages serves small ones. */
    madvise(base, want, pages == REGION_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    madvise(base, want, MADV_DONTDUMP);
    if (populate(base, want, err) < 0) {
        region_close(out);
        return -1;
    }
    return 0;
}

void region_close(struct region *r)
{
    if (r->base && r->size)
        munmap(r->base, r->size);
    *r = (struct region){ 0 };
}
