#include "util/region.h"

#include "util/err.h"
#include "util/size.h"

#include <inttypes.h>
#include <sys/mman.h>

#define HUGE_PAGE (2 * MIB)

uint64_t region_size(uint64_t size, enum region_pages pages)
{
    return size_up(size, pages == REGION_HUGE ? HUGE_PAGE : 4 * KIB);
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

    /* Advice only: a kernel without huge pages serves small ones. */
    if (want) {
        madvise(base, want, pages == REGION_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        madvise(base, want, MADV_DONTDUMP);
    }
    *out = (struct region){ .base = base, .size = want };
    return 0;
}

int region_lock(struct region *r, struct err *err)
{
    if (r->size && mlock(r->base, r->size) < 0)
        return err_errno(err, "lock %" PRIu64 " bytes in memory (raise LimitMEMLOCK or set "
                              "memory.lock: false)", r->size);
    return 0;
}

void region_close(struct region *r)
{
    if (r->base && r->size)
        munmap(r->base, r->size);
    *r = (struct region){ 0 };
}
