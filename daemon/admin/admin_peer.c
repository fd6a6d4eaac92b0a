#include "daemon/admin/admin_peer.h"

#include "util/err.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool read_credentials(struct ucred *out, int fd)
{
    socklen_t size = sizeof *out;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out, &size) == 0;
}

struct admin_peer admin_peer_of(int fd)
{
    struct ucred who;

    if (!read_credentials(&who, fd))
        return (struct admin_peer){ .uid = (uid_t)-1 };
    return (struct admin_peer){ .uid = who.uid, .pid = who.pid };
}

/* The group of the socket's file, asked each time: chgrp(1) counts at once. */
static bool group_of(gid_t *out, int listener)
{
    struct sockaddr_un address = { 0 };
    socklen_t size = sizeof address;
    struct stat about;

    if (getsockname(listener, (struct sockaddr *)&address, &size) < 0 ||
        size <= offsetof(struct sockaddr_un, sun_path) || address.sun_path[0] == '\0')
        return false; /* an abstract name has no group */
    char path[sizeof address.sun_path + 1] = "";
    memcpy(path, address.sun_path, sizeof address.sun_path);
    if (stat(path, &about) < 0 || !S_ISSOCK(about.st_mode))
        return false;
    *out = about.st_gid;
    return true;
}

static bool is_member(int fd, gid_t own, gid_t group)
{
    gid_t few[32], *list = few;
    socklen_t size = sizeof few;
    bool found = own == group;

    int rc = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, list, &size);
    if (rc < 0 && errno == ERANGE) { /* size now says how much it takes */
        list = malloc(size);
        if (!list)
            return found;
        rc = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, list, &size);
    }
    for (size_t i = 0; rc == 0 && i < size / sizeof *list && !found; i++)
        found = list[i] == group;
    if (list != few)
        free(list);
    return found;
}

int admin_peer_check(int fd, int listener, const char *command, struct err *err)
{
    char members[64] = "";
    struct ucred who;
    gid_t group;

    if (!read_credentials(&who, fd))
        return err_set(err, ERR_INPUT, "'%s' is refused: the kernel does not tell who asks",
                       command);
    if (who.uid == 0 || who.uid == geteuid())
        return 0;
    if (group_of(&group, listener)) {
        if (is_member(fd, who.gid, group))
            return 0;
        snprintf(members, sizeof members, " and to members of the socket's group (gid %u)",
                 group);
    }
    return err_set(err, ERR_INPUT, "'%s' is open to root, to the daemon's user (uid %u)%s; you "
                                   "are uid %u", command, geteuid(), members, who.uid);
}
