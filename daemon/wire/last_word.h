/* last_word: why a child gives up, told to the supervisor before its loop runs.
 *
 * One STATUS frame on a channel that nothing else is using. The supervisor keeps it for its
 * status and for whoever asked for a reload. Child processes, before threads start. */
#ifndef DAEMON_LAST_WORD_H
#define DAEMON_LAST_WORD_H

void last_word(int channel, const char *text); /* best effort */

#endif
