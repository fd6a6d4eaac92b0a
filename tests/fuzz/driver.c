/* driver: runs a fuzz target over mutated seeds, where clang's fuzzer is not at hand.
 *
 *   fuzz_NAME [-t SECONDS] [-n RUNS] [-s SEED] FILE-OR-DIRECTORY...
 *
 * Every seed is run as it is, then mutations until time or runs are over. The same seed and
 * files give the same inputs. The input being run lies in PROGRAM.input, a shared mapping,
 * so it is still there after a crash: run it again by naming it with -n 0. Blind mutation
 * finds less than a coverage-guided fuzzer: "make fuzz FUZZER=clang SAN=address CC=clang"
 * builds the same targets with libFuzzer instead of this file. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_CAP = 1 << 16, SEED_CAP = 4096 };

struct seed {
    uint8_t *bytes;
    size_t size;
};

struct driver {
    struct seed seeds[SEED_CAP];
    uint32_t n_seeds;
    uint64_t state; /* of the random numbers; never 0 */
    uint8_t *input; /* [INPUT_CAP], the shared mapping */
    int input_fd;
};

static uint64_t next_random(struct driver *d)
{
    /* xorshift64*, Vigna 2016. */
    d->state ^= d->state >> 12;
    d->state ^= d->state << 25;
    d->state ^= d->state >> 27;
    return d->state * 0x2545F4914F6CDD1D;
}

static size_t below(struct driver *d, size_t n)
{
    return n ? (size_t)(next_random(d) % n) : 0;
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void add_file(struct driver *d, const char *path)
{
    struct seed *s = &d->seeds[d->n_seeds];
    FILE *f = fopen(path, "rb");

    if (!f)
        die(path);
    if (d->n_seeds == SEED_CAP) {
        fclose(f);
        return;
    }
    s->bytes = malloc(INPUT_CAP);
    if (!s->bytes)
        die("memory for a seed");
    s->size = fread(s->bytes, 1, INPUT_CAP, f); /* the beginning of larger ones */
    fclose(f);
    d->n_seeds++;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* not by locale: the order must repeat */
}

static void add_seeds(struct driver *d, const char *path)
{
    struct dirent **names;
    struct stat st;
    char inner[4096];

    if (stat(path, &st) < 0)
        die(path);
    if (!S_ISDIR(st.st_mode)) {
        add_file(d, path);
        return;
    }
    int n = scandir(path, &names, NULL, by_name);
    if (n < 0)
        die(path);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') {
            snprintf(inner, sizeof inner, "%s/%s", path, names[i]->d_name);
            add_seeds(d, inner);
        }
        free(names[i]);
    }
    free(names);
}

/* Puts n bytes in at a place, or takes the n bytes there out. */
static size_t put_in(uint8_t *at, size_t size, size_t place, const void *bytes, size_t n)
{
    if (size + n > INPUT_CAP)
        return size;
    memmove(at + place + n, at + place, size - place);
    memcpy(at + place, bytes, n);
    return size + n;
}

static size_t take_out(uint8_t *at, size_t size, size_t place, size_t n)
{
    memmove(at + place, at + place + n, size - place - n);
    return size - n;
}

/* What parsers trip over. */
static const char *const words[] = {
    "0", "-1", "-0", "1e3", "0.5", "4294967295", "4294967296", "9223372036854775808",
    "18446744073709551615", "18446744073709551616", "1e400", "null", "true", "false", "{}", "[]",
    "\"\"", "\"", "\\", "\\u0000", "\\ud800", "[", "]", "{", "}", ",", ":", "\xc3", "\xff", "\n",
    "\"a\":", "[[[[[[[[", "{\"a\":{\"a\":", " ", "/", "..",
};

/* Replaces a run of digits, where there is one, with a number of the list. */
static size_t other_number(struct driver *d, uint8_t *at, size_t size)
{
    size_t from = below(d, size), n = 0;

    while (from < size && (at[from] < '0' || at[from] > '9'))
        from++;
    while (from + n < size && at[from + n] >= '0' && at[from + n] <= '9')
        n++;
    if (!n)
        return size;
    const char *word = words[below(d, 11)];
    size = take_out(at, size, from, n);
    return put_in(at, size, from, word, strlen(word));
}

static size_t mutate_once(struct driver *d, uint8_t *at, size_t size)
{
    uint8_t copy[256];
    size_t place = below(d, size + 1), n, from;
    const char *word;

    switch (below(d, 8)) {
    case 0:
        if (place < size)
            at[place] ^= (uint8_t)(1u << below(d, 8));
        return size;
    case 1:
        if (place < size)
            at[place] = (uint8_t)next_random(d);
        return size;
    case 2:
        n = below(d, size - place < 64 ? size - place + 1 : 64);
        return take_out(at, size, place, n);
    case 3: /* a piece of itself somewhere else */
        from = below(d, size);
        n = below(d, size - from < sizeof copy ? size - from + 1 : sizeof copy);
        memcpy(copy, at + from, n);
        return put_in(at, size, place, copy, n);
    case 4: { /* a piece of another seed */
        const struct seed *s = &d->seeds[below(d, d->n_seeds)];
        from = below(d, s->size);
        n = below(d, s->size - from < sizeof copy ? s->size - from + 1 : sizeof copy);
        return put_in(at, size, place, s->bytes + from, n);
    }
    case 5:
        word = words[below(d, sizeof words / sizeof words[0])];
        return put_in(at, size, place, word, strlen(word));
    case 6:
        return other_number(d, at, size);
    default: /* cut it off */
        return below(d, 4) ? size : place;
    }
}

/* The mapped file holds exactly the input, so that it can be run again; the target gets
 * memory of just that size, so that a sanitizer sees a read past its end. */
static void run(struct driver *d, const uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);

    if (!exact || ftruncate(d->input_fd, (off_t)size) < 0)
        die("an input");
    if (size) {
        memcpy(d->input, bytes, size);
        memcpy(exact, bytes, size);
    }
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static void run_mutation(struct driver *d)
{
    static uint8_t work[INPUT_CAP];
    const struct seed *s = &d->seeds[below(d, d->n_seeds)];
    size_t size = s->size, n = 1 + below(d, 6);

    memcpy(work, s->bytes, size);
    while (n-- > 0)
        size = mutate_once(d, work, size);
    run(d, work, size);
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    static struct driver d = { .state = 1 };
    double limit = 10.0, start = seconds();
    uint64_t max_runs = UINT64_MAX, runs = 0;
    char path[4096];
    int c;

    while ((c = getopt(argc, argv, "t:n:s:")) != -1) {
        if (c == 't')
            limit = strtod(optarg, NULL);
        else if (c == 'n')
            max_runs = strtoull(optarg, NULL, 10);
        else if (c == 's')
            d.state = strtoull(optarg, NULL, 10) * 2 + 1;
        else
            return 2;
    }
    for (int i = optind; i < argc; i++)
        add_seeds(&d, argv[i]);
    if (d.n_seeds == 0) {
        fprintf(stderr, "usage: %s [-t SECONDS] [-n RUNS] [-s SEED] FILE-OR-DIRECTORY...\n",
                argv[0]);
        return 2;
    }
    snprintf(path, sizeof path, "%s.input", argv[0]);
    d.input_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (d.input_fd < 0)
        die(path);
    d.input = mmap(NULL, INPUT_CAP, PROT_READ | PROT_WRITE, MAP_SHARED, d.input_fd, 0);
    if (d.input == MAP_FAILED)
        die(path);
    for (uint32_t i = 0; i < d.n_seeds; i++)
        run(&d, d.seeds[i].bytes, d.seeds[i].size);
    for (; runs < max_runs; runs++) {
        if (runs % 64 == 0 && seconds() - start >= limit)
            break;
        run_mutation(&d);
    }
    printf("%s: %u seeds, %" PRIu64 " mutations, %.1f s, nothing found\n", argv[0], d.n_seeds,
           runs, seconds() - start);
    unlink(path);
    for (uint32_t i = 0; i < d.n_seeds; i++)
        free(d.seeds[i].bytes);
    return 0;
}
