#include "daemon/worker/conversation.h"

#include "text/chat.h"

/* What is hashed for one purpose is never what is hashed for another. */
enum purpose { OF_CONVERSATION = 1, OF_CALL, OF_CONTENT };

static struct sip begin(const struct sip_sum *secret, enum purpose purpose)
{
    struct sip s;

    sip_init(&s, secret);
    sip_put_number(&s, purpose);
    return s;
}

void conversation_begin(struct conversation *c, const struct sip_sum *secret, uint32_t tenant)
{
    c->sip = begin(secret, OF_CONVERSATION);
    sip_put_number(&c->sip, tenant);
}

static void put_role(struct conversation *c, enum chat_role role)
{
    sip_put_number(&c->sip, role);
}

void conversation_say(struct conversation *c)
{
    put_role(c, CHAT_ASSISTANT);
}

void conversation_content(struct conversation *c, const char *text, size_t size)
{
    sip_put(&c->sip, text, size);
}

void conversation_said(struct conversation *c, uint64_t content_size)
{
    sip_put_number(&c->sip, content_size);
}

void conversation_call(struct conversation *c, const char *name, size_t size)
{
    sip_put_text(&c->sip, name, size);
}

void conversation_put(struct conversation *c, const struct chat_message *m)
{
    put_role(c, m->role);
    conversation_content(c, m->text, m->size);
    conversation_said(c, m->size);
    for (size_t i = 0; i < m->n_calls; i++)
        conversation_call(c, m->calls[i].name, m->calls[i].name_size);
}

struct sip_sum conversation_call_key(const struct sip_sum *secret, uint32_t tenant, const char *id,
                                     size_t size)
{
    struct sip s = begin(secret, OF_CALL);

    sip_put_number(&s, tenant);
    sip_put_text(&s, id, size);
    return sip_sum(&s);
}

struct sip conversation_content_begin(const struct sip_sum *secret)
{
    return begin(secret, OF_CONTENT);
}

struct sip_sum conversation_content_sum(const struct sip_sum *secret, const char *text,
                                        size_t size)
{
    struct sip s = begin(secret, OF_CONTENT);

    sip_put(&s, text, size);
    return sip_sum(&s);
}
