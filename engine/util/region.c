#include "util/region.h"

#include "util/err.h"
#include "util/size.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

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

/* Pages that are not there yet, between from and to, can be touched and are. */
static int take_pages(struct region *r, uint64_t from, uint64_t to, struct err *err)
{
    char *at = r->base + from;
    size_t n = (size_t)(to - from);

    if (mprotect(at, n, PROT_READ | PROT_WRITE) < 0)
        return err_errno(err, "map %zu bytes", n);
    /* Advice only: a kernel without huge pages serves small ones. */
    madvise(at, n, r->pages == REGION_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (r->locked && mlock2(at, n, MLOCK_ONFAULT) < 0)
        return err_errno(err, "wire %zu bytes (raise LimitMEMLOCK, or set memory.lock: false)", n);
    return populate(at, n, err);
}

/* Unlocked first: what is locked cannot be given back. */
static void give_pages(const struct region *r, uint64_t from, uint64_t to)
{
    char *at = r->base + from;
    size_t n = (size_t)(to - from);

    munlock(at, n);
    madvise(at, n, MADV_DONTNEED);
    mprotect(at, n, PROT_NONE);
}

/* Somebody who limits the addresses of this process means it: none are set aside then. */
static bool addresses_are_limited(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* Addresses that cannot be touched, on a 2 MiB border. They cost the kernel nothing, whatever it
 * thinks of overcommitting. */
static char *map_aligned(uint64_t size)
{
    uint64_t mapped;

    if (!size_add(&mapped, size, HUGE_PAGE)) {
        errno = ENOMEM;
        return NULL;
    }
    /* Map one huge page more, then cut both ends off so that the rest is aligned. */
    char *at = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    char *base = (char *)size_up((uint64_t)(uintptr_t)at, HUGE_PAGE);
    if (base > at)
        munmap(at, (size_t)(base - at));
    if (at + mapped > base + size)
        munmap(base + size, (size_t)(at + mapped - (base + size)));
    return base;
}

int region_reserve(struct region *out, uint64_t size, uint64_t most, enum region_pages pages,
                   struct err *err)
{
    struct region r = { .size = region_size(size, pages), .pages = pages };

    r.most = region_size(most, pages);
    if (r.size < size || r.most < most)
        return err_set(err, ERR_NOMEM, "a region of %" PRIu64 " bytes", size);
    if (r.most < r.size || addresses_are_limited())
        r.most = r.size;
    r.base = map_aligned(r.most);
    if (!r.base && r.most > r.size) {
        r.most = r.size;
        r.base = map_aligned(r.most);
    }
    if (!r.base)
        return err_errno(err, "map %" PRIu64 " bytes", r.size);
    if (r.most > 0)
        madvise(r.base, r.most, MADV_DONTDUMP);
    if (r.size > 0 && take_pages(&r, 0, r.size, err) < 0) {
        region_close(&r);
        return -1;
    }
    *out = r;
    return 0;
}

int region_open(struct region *out, uint64_t size, enum region_pages pages, struct err *err)
{
    return region_reserve(out, size, size, pages, err);
}

int region_resize(struct region *r, uint64_t size, struct err *err)
{
    uint64_t want = region_size(size, r->pages);

    if (want < size || want > r->most)
        return err_set(err, ERR_NOMEM, "there are addresses for %" PRIu64 " bytes, not for "
                       "%" PRIu64, r->most, size);
    if (want > r->size && take_pages(r, r->size, want, err) < 0) {
        give_pages(r, r->size, want);
        return -1;
    }
    if (want < r->size)
        give_pages(r, want, r->size);
    r->size = want;
    return 0;
}

void region_lock(struct region *r)
{
    r->locked = true;
    if (r->most > r->size)
        munlock(r->base + r->size, (size_t)(r->most - r->size));
}

void region_drop_reserve(struct region *r)
{
    if (r->most > r->size)
        munmap(r->base + r->size, (size_t)(r->most - r->size));
    r->most = r->size;
}

void region_close(struct region *r)
{
    if (r->base && r->most)
        munmap(r->base, r->most);
    *r = (struct region){ 0 };
}

void region_abandon(struct region *r)
{
    *r = (struct region){ 0 };
}
