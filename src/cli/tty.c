#include "cli/tty.h"

#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_USUAL = 80 };

void tty_open(struct tty *t)
{
    *t = (struct tty){.fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (t->fd >= 0 && tcgetattr(t->fd, &t->modes) < 0) {
        close(t->fd);
        t->fd = -1;
    }
}

void tty_close(struct tty *t)
{
    if (t->fd >= 0) {
        close(t->fd);
    }
    free(t->out);
}

void tty_flush(struct tty *t)
{
    while (t->out_at < t->out_len) {
        ssize_t n = write(t->fd, t->out + t->out_at, t->out_len - t->out_at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            break; /* it is gone; reading finds out */
        }
        t->out_at += (size_t)n;
    }
    free(t->out);
    t->out = NULL;
    t->out_len = t->out_at = 0;
}

void tty_say(struct tty *t, char *take_text)
{
    size_t left = t->out_len - t->out_at, len = strlen(take_text);
    char *all = text_allocate(left + len + 1);
    memcpy(all, t->out ? t->out + t->out_at : "", left);
    memcpy(all + left, take_text, len);
    free(take_text);
    free(t->out);
    t->out = all;
    t->out_at = 0;
    t->out_len = left + len;
    tty_flush(t);
}

int tty_read_line(struct tty *t, struct rlm_str *ret_line)
{
    while (tty_is_in_front(t)) {
        char c;
        ssize_t n = read(t->fd, &c, 1);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return 0;
        }
        if (n <= 0) {
            return -1;
        }
        if (c == '\n') {
            *ret_line = (struct rlm_str){t->line, t->line_len};
            t->line_len = 0;
            return 1;
        }
        if (t->line_len < sizeof t->line) {
            t->line[t->line_len++] = c;
        }
    }
    return 0;
}

void tty_drop_typed(struct tty *t)
{
    if (tty_is_in_front(t)) {
        tcflush(t->fd, TCIFLUSH);
    }
    t->line_len = 0;
}

bool tty_is_in_front(const struct tty *t)
{
    return tcgetpgrp(t->fd) == getpgrp();
}

bool tty_is_gone(const struct tty *t)
{
    return tcgetpgrp(t->fd) < 0;
}

int tty_columns(const struct tty *t)
{
    struct winsize size;
    return ioctl(t->fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : COLUMNS_USUAL;
}

void tty_restore(struct tty *t)
{
    if (tty_is_in_front(t)) {
        tcsetattr(t->fd, TCSADRAIN, &t->modes);
    }
}
