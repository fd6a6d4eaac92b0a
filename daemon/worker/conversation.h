/* conversation: keys under which a reply is remembered.
 *
 * The id of each tool call; and what was said up to the reply and in it, without reasoning and
 * arguments, which clients drop or spell anew. Hashed with the engine's secret, and with a number
 * of whose conversation it is, so that nobody can aim at what is another's. Any thread. */
#ifndef DAEMON_CONVERSATION_H
#define DAEMON_CONVERSATION_H

#include "util/sip.h"

#include <stddef.h>
#include <stdint.h>

struct chat_message;

/* Whose it is. There are no API keys yet: everybody is one. */
enum { CONVERSATION_EVERYBODY = 0 };

struct conversation {
    struct sip sip;
};

void conversation_begin(struct conversation *c, const struct sip_sum *secret, uint32_t tenant);
void conversation_put(struct conversation *c, const struct chat_message *m);
/* The key of the message that was put last. */
static inline struct sip_sum conversation_key(const struct conversation *c)
{
    return sip_sum(&c->sip);
}
/* The same for an assistant's message that is still being said: its content piece by piece, then
 * its calls by name. */
void conversation_say(struct conversation *c);
void conversation_content(struct conversation *c, const char *text, size_t size);
void conversation_said(struct conversation *c, uint64_t content_size);
void conversation_call(struct conversation *c, const char *name, size_t size);

struct sip_sum conversation_call_key(const struct sip_sum *secret, uint32_t tenant, const char *id,
                                     size_t size);
struct sip_sum conversation_content_sum(const struct sip_sum *secret, const char *text,
                                        size_t size);
/* The same piece by piece. */
struct sip conversation_content_begin(const struct sip_sum *secret);

#endif
