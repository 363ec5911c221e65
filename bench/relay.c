// relay: the least that any AMQP broker must do for a message, as an upper bound to compare brokers with.
// usage: relay port
//
// One process and one epoll loop parse the frames of publishers and write deliveries to the one consumer. There is no queue, no routing, no user, no
// flow control and no disk: a message without a consumer is dropped, acks are ignored, and a confirm says only that a message was read.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { IN_BYTES = 1 << 20, WAITING_BYTES_MAX = 8 << 20, FRAME_BYTES_MAX = 131072 };
enum { METHOD = 1, FRAME_END = 0xCE, FRAME_BESIDE = 8 };  // a frame is its payload and eight bytes more
#define ID(class, method) ((uint32_t)(class) << 16 | (method))

typedef struct {
  int fd, greeted, confirms;
  uint64_t published, confirmed;
  uint8_t *in, *out;
  size_t filled, sent, written, room;
} Connection;

static int poller;
static Connection *consumer;
static uint64_t delivery_tag;

static uint16_t read16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t read32(const uint8_t *p) { return (uint32_t)read16(p) << 16 | read16(p + 2); }
static void write16(uint8_t *p, uint16_t v) { p[0] = v >> 8; p[1] = (uint8_t)v; }
static void write32(uint8_t *p, uint32_t v) { write16(p, v >> 16); write16(p + 2, (uint16_t)v); }
static void write64(uint8_t *p, uint64_t v) { write32(p, v >> 32); write32(p + 4, (uint32_t)v); }

static void watch(Connection *c, int operation, int fd, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = c};
  epoll_ctl(poller, operation, fd, &event);
}

// Return where the next `size` bytes of output go.
static uint8_t *output(Connection *c, size_t size) {
  if (c->written + size > c->room) {
    memmove(c->out, c->out + c->sent, c->written -= c->sent);
    c->sent = 0;
    while (c->written + size > c->room) c->out = realloc(c->out, c->room *= 2);
  }
  return c->out + c->written;
}

// Write a method frame with arguments of `size` bytes, which the caller has put at `arguments`.
static void answer(Connection *c, int channel, uint32_t id, const void *arguments, size_t size) {
  uint8_t *o = output(c, size + 12);
  o[0] = METHOD;
  write16(o + 1, (uint16_t)channel);
  write32(o + 3, (uint32_t)size + 4);
  write32(o + 7, id);
  memcpy(o + 11, arguments, size);
  o[11 + size] = FRAME_END;
  c->written += size + 12;
}

static void flush(Connection *c) {
  while (c->sent < c->written) {
    ssize_t n = write(c->fd, c->out + c->sent, c->written - c->sent);
    if (n < 0) {
      watch(c, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLOUT);
      return;
    }
    c->sent += (size_t)n;
  }
  c->sent = c->written = 0;
}

// Deliver the content whose frames are `content`; `names` are the exchange and the routing key as published.
static void deliver(const uint8_t *names, const uint8_t *content, size_t size) {
  size_t length = (size_t)names[0] + names[1 + names[0]] + 2;
  uint8_t arguments[16 + 512] = {1, 'c'};
  write64(arguments + 2, ++delivery_tag);
  memcpy(arguments + 11, names, length);
  answer(consumer, 1, ID(60, 60), arguments, 11 + length);
  memcpy(output(consumer, size), content, size);
  consumer->written += size;
}

// Return the size of a publish with its content; 0 where some of it is not read yet.
static size_t publish(Connection *c, const uint8_t *frame, size_t available) {
  size_t method = read32(frame + 3) + FRAME_BESIDE, size = method;
  if (available < size + 23) return 0;
  uint64_t left = read32(frame + size + 15);  // bodies of 4 GiB are not sent here
  size += read32(frame + size + 3) + FRAME_BESIDE;
  while (left) {
    if (available < size + 7) return 0;
    left -= read32(frame + size + 3);
    size += read32(frame + size + 3) + FRAME_BESIDE;
  }
  if (available < size) return 0;
  c->published++;
  if (consumer) deliver(frame + 13, frame + method, size - method);
  return size;
}

static void method(Connection *c, int channel, uint32_t id) {
  uint8_t arguments[16] = {0};
  switch (id) {
    case ID(10, 11):  // connection.start-ok: tune
      write16(arguments, 2047);
      write32(arguments + 2, FRAME_BYTES_MAX);
      answer(c, channel, ID(10, 30), arguments, 8);
      break;
    case ID(10, 40): answer(c, channel, ID(10, 41), arguments, 1); break;  // connection.open
    case ID(20, 10): answer(c, channel, ID(20, 11), arguments, 4); break;  // channel.open
    case ID(50, 10):                                                      // queue.declare
      memcpy(arguments, "\1q", 2);
      answer(c, channel, ID(50, 11), arguments, 10);
      break;
    case ID(50, 40): answer(c, channel, ID(50, 41), arguments, 4); break;  // queue.delete
    case ID(60, 10): answer(c, channel, ID(60, 11), arguments, 0); break;  // basic.qos
    case ID(60, 20):                                                      // basic.consume
      consumer = c;
      answer(c, channel, ID(60, 21), "\1c", 2);
      break;
    case ID(85, 10):  // confirm.select
      c->confirms = 1;
      answer(c, channel, ID(85, 11), arguments, 0);
      break;
  }
}

static void take(Connection *c) {
  size_t at = 0;
  if (!c->greeted) {
    if (c->filled < 8) return;
    static const uint8_t start[] = "\0\11\0\0\0\0\0\0\0\5PLAIN\0\0\0\5en_US";
    answer(c, 0, ID(10, 10), start, sizeof start - 1);
    c->greeted = 1;
    at = 8;
  }
  while (c->filled - at >= FRAME_BESIDE) {
    const uint8_t *frame = c->in + at;
    size_t size = read32(frame + 3) + FRAME_BESIDE;
    if (c->filled - at < size) break;
    if (frame[0] == METHOD && read32(frame + 7) == ID(60, 40)) {
      size = publish(c, frame, c->filled - at);
      if (!size) break;
    } else if (frame[0] == METHOD) {
      method(c, read16(frame + 1), read32(frame + 7));
    }
    at += size;
  }
  memmove(c->in, c->in + at, c->filled -= at);
  if (c->confirms && c->published > c->confirmed) {
    uint8_t arguments[9] = {[8] = 1};
    write64(arguments, c->confirmed = c->published);
    answer(c, 1, ID(60, 80), arguments, 9);
  }
}

static void end(Connection *c) {
  if (consumer == c) consumer = NULL;
  close(c->fd);
  free(c->in);
  free(c->out);
  free(c);
}

static void serve(Connection *c, uint32_t events) {
  if (events & EPOLLOUT) {
    flush(c);
    if (!c->written) watch(c, EPOLL_CTL_MOD, c->fd, EPOLLIN);
  }
  if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
  ssize_t n = read(c->fd, c->in + c->filled, IN_BYTES - c->filled);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    end(c);
    return;
  }
  c->filled += (size_t)n;
  take(c);
  flush(c);
  if (!consumer || consumer == c) return;
  flush(consumer);
  // The consumer is slower: publishers wait for it.
  while (consumer->written - consumer->sent > WAITING_BYTES_MAX) {
    struct pollfd writable = {.fd = consumer->fd, .events = POLLOUT};
    poll(&writable, 1, -1);
    if (writable.revents & (POLLERR | POLLHUP)) return;
    flush(consumer);
  }
}

static void accept_one(int listener) {
  Connection *c = calloc(1, sizeof *c);
  int on = 1;
  c->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  c->in = malloc(IN_BYTES);
  c->out = malloc(c->room = 2 << 20);
  watch(c, EPOLL_CTL_ADD, c->fd, EPOLLIN);
}

int main(int count, char **arguments) {
  int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (count != 2) return 1;
  address.sin_port = htons((uint16_t)atoi(arguments[1]));
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (void *)&address, sizeof address) || listen(listener, 64)) {
    perror("relay");
    return 1;
  }
  signal(SIGPIPE, SIG_IGN);
  poller = epoll_create1(0);
  watch(NULL, EPOLL_CTL_ADD, listener, EPOLLIN);
  puts("ready");
  fflush(stdout);
  for (struct epoll_event events[64];;) {
    int ready = epoll_wait(poller, events, 64, -1);
    for (int i = 0; i < ready; i++) {
      if (events[i].data.ptr) serve(events[i].data.ptr, events[i].events);
      else accept_one(listener);
    }
  }
}
