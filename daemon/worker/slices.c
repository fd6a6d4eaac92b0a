#include "daemon/worker/slices.h"

#include "util/err.h"

#include <errno.h>

static int take_turn(struct slices *s);

static int on_turn(sd_event_source *source, void *ctx)
{
    struct slices *s = ctx;

    (void)source;
    /* Without memory for another turn the work is done in this one. Whoever ended it may have
     * freed everything. */
    while (s->go_on(s->ctx) == 1)
        if (take_turn(s) >= 0)
            break;
    return 0;
}

/* A source for each turn: sd-event dispatches the one that has been pending longest, and a
 * deferred one counts as pending since it was made, so it would always be the first. */
static int take_turn(struct slices *s)
{
    slices_stop(s);
    return sd_event_add_defer(s->loop, &s->source, on_turn, s);
}

int slices_start(struct slices *s, sd_event *loop, int (*go_on)(void *ctx), void *ctx,
                 struct err *err)
{
    *s = (struct slices){ .loop = loop, .go_on = go_on, .ctx = ctx };
    int rc = take_turn(s);
    if (rc < 0) {
        errno = -rc;
        return err_errno(err, "a turn in the loop");
    }
    return 0;
}

void slices_stop(struct slices *s)
{
    s->source = sd_event_source_disable_unref(s->source);
}
