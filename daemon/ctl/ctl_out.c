/* How answers of colizigctl look: JSON, tables of bytes, failures, a bar while a model loads. */
#include "daemon/ctl/ctl.h"

#include "util/clock.h"
#include "util/err.h"
#include "util/size.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 16, PROGRESS_WIDTH = 30 };

void ctl_print_json(json_t *object)
{
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    fflush(stdout);
    json_decref(object);
}

int ctl_fail(const struct ctl_args *args, const struct err *err)
{
    char plain[sizeof err->text];

    fflush(stdout);
    fprintf(stderr, "colizigctl: %s\n", ctl_plain(plain, sizeof plain, err->text));
    if (args && ctl_has(args, "--json"))
        ctl_print_json(json_pack("{s:{s:s, s:s}}", "error", "kind", err_kind_name(err->kind),
                                 "message", plain));
    return (int)err_exit_status(err->kind);
}

const char *ctl_grouped(char buf[CTL_BYTES_TEXT], uint64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    size_t used = 0;

    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = '\0';
    return buf;
}

static void fill_bar(char *bar, size_t width, double share)
{
    size_t filled = (size_t)(share * (double)width + 0.5);

    if (filled > width)
        filled = width;
    if (filled == 0 && share > 0.0)
        bar[filled++] = '.'; /* there, but less than a mark */
    else
        memset(bar, '#', filled);
    memset(bar + filled, ' ', width - filled);
    bar[width] = '\0';
}

void ctl_print_bytes(const char *name, uint64_t bytes, uint64_t whole, const char *detail)
{
    char grouped[CTL_BYTES_TEXT], size[16], bar[BAR_WIDTH + 1];
    double share = whole ? (double)bytes / (double)whole : 0.0;

    bool more = detail && *detail;
    fill_bar(bar, BAR_WIDTH, share);
    if (!more)
        bar[strcspn(bar, " ")] = '\0'; /* nothing follows, so no blanks either */
    printf("  %-18s %17s %11s %5.1f %%  %s%s%s\n", name, ctl_grouped(grouped, bytes),
           size_text(size, sizeof size, bytes), share * 100.0, bar, more ? "  " : "",
           more ? detail : "");
}

const char *ctl_plain(char *buf, size_t cap, const char *text)
{
    size_t n = 0, left = strlen(text);

    while (left && n + 5 < cap) {
        int length = utf8_next(text, left, NULL);
        unsigned char c = (unsigned char)*text;
        if (length <= 0 || c < 0x20 || c == 0x7f) {
            buf[n++] = '?';
            length = 1;
        } else {
            memcpy(buf + n, text, (size_t)length);
            n += (size_t)length;
        }
        text += length;
        left -= (size_t)length;
    }
    buf[n] = '\0';
    return buf;
}

bool ctl_progress_loading(void *progress, uint64_t done, uint64_t total)
{
    struct ctl_progress *p = progress;
    char bar[PROGRESS_WIDTH + 1], size[16];
    uint64_t now = clock_ns();

    if (!p->started_ns)
        p->started_ns = now;
    /* Ten times a second is smooth; the last one always comes. */
    if (!isatty(STDERR_FILENO) || (now - p->drawn_ns < 100000000u && done < total))
        return true;
    p->drawn_ns = now;
    p->shown = true;
    fill_bar(bar, PROGRESS_WIDTH, total ? (double)done / (double)total : 1.0);
    double seconds = (double)(now - p->started_ns) / 1e9;
    fprintf(stderr, "\rloading [%s] %3.0f %% of %s, %.2f GB/s ", bar,
            total ? 100.0 * (double)done / (double)total : 100.0,
            size_text(size, sizeof size, total),
            seconds > 0.0 ? (double)done / 1e9 / seconds : 0.0);
    fflush(stderr);
    return true;
}

void ctl_progress_end(struct ctl_progress *p)
{
    if (p->shown)
        fputc('\n', stderr);
    p->shown = false;
}
