/* What test_programs.py says of each program, by rabbitmq-c.  It leaves recovery to the program. */

#include <amqp.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MESSAGES 10

static void say(const char *word) {
  puts(word);
  fflush(stdout);
}

static void must(int good, const char *what) {
  if (!good) {
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
  }
}

static int good(amqp_rpc_reply_t reply) { return reply.reply_type == AMQP_RESPONSE_NORMAL; }

/* Log in and say that a cancelled consumer wants to know of it, which the library does not say. */
static int login(amqp_connection_state_t connection) {
  amqp_table_entry_t can = {.key = amqp_cstring_bytes("consumer_cancel_notify"),
                            .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value = {.boolean = 1}}};
  amqp_table_entry_t client = {
      .key = amqp_cstring_bytes("capabilities"),
      .value = {.kind = AMQP_FIELD_KIND_TABLE, .value = {.table = {1, &can}}}};
  const amqp_table_t properties = {1, &client};
  return good(amqp_login_with_properties(connection, "/", 0, 131072, 0, &properties,
                                         AMQP_SASL_METHOD_PLAIN, "guest", "guest"));
}

/* Return a connection with channel 1 open, or NULL. */
static amqp_connection_state_t dial(const char *host, int port, const char *authority) {
  amqp_connection_state_t connection = amqp_new_connection();
  amqp_socket_t *socket;
  if (strcmp(authority, "-") == 0) {
    socket = amqp_tcp_socket_new(connection);
  } else {
    socket = amqp_ssl_socket_new(connection);
    must(amqp_ssl_socket_set_cacert(socket, authority) == AMQP_STATUS_OK, "the authority");
    amqp_ssl_socket_set_verify_peer(socket, 1);
    amqp_ssl_socket_set_verify_hostname(socket, 1);
  }
  if (amqp_socket_open(socket, host, port) == AMQP_STATUS_OK && login(connection)) {
    amqp_channel_open(connection, 1);
    if (good(amqp_get_rpc_reply(connection))) return connection;
  }
  amqp_destroy_connection(connection);
  return NULL;
}

static void declare(amqp_connection_state_t connection, amqp_bytes_t queue) {
  amqp_queue_declare(connection, 1, queue, 0, 1, 0, 0, amqp_empty_table);
  must(good(amqp_get_rpc_reply(connection)), "queue.declare");
}

static void publish(amqp_connection_state_t connection, amqp_bytes_t queue, const char *body) {
  amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                        .delivery_mode = 2};
  must(amqp_basic_publish(connection, 1, amqp_empty_bytes, queue, 1, 0, &properties,
                          amqp_cstring_bytes(body)) == AMQP_STATUS_OK,
       "basic.publish");
}

/* Wait until the broker has confirmed the messages with numbers up to `last`. */
static void wait_for_confirms(amqp_connection_state_t connection, uint64_t first, uint64_t last) {
  uint64_t left = last - first + 1;
  while (left > 0) {
    amqp_frame_t frame;
    must(amqp_simple_wait_frame(connection, &frame) == AMQP_STATUS_OK, "a confirm");
    must(frame.frame_type == AMQP_FRAME_METHOD &&
             frame.payload.method.id == AMQP_BASIC_ACK_METHOD,
         "a confirm is a basic.ack");
    amqp_basic_ack_t *ack = frame.payload.method.decoded;
    left = ack->multiple ? last - ack->delivery_tag : left - 1;
  }
}

static void consume(amqp_connection_state_t connection, amqp_bytes_t queue) {
  amqp_basic_consume(connection, 1, queue, amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
  must(good(amqp_get_rpc_reply(connection)), "basic.consume");
}

/* Wait for a message with this body and return its delivery tag. */
static uint64_t receive(amqp_connection_state_t connection, const char *body) {
  amqp_envelope_t envelope;
  must(good(amqp_consume_message(connection, &envelope, NULL, 0)), "basic.deliver");
  must(envelope.message.body.len == strlen(body) &&
           memcmp(envelope.message.body.bytes, body, strlen(body)) == 0,
       "the body of a message");
  uint64_t tag = envelope.delivery_tag;
  amqp_destroy_envelope(&envelope);
  return tag;
}

static void wait_for_cancel(amqp_connection_state_t connection) {
  amqp_envelope_t envelope;
  amqp_rpc_reply_t reply = amqp_consume_message(connection, &envelope, NULL, 0);
  must(reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
           reply.library_error == AMQP_STATUS_UNEXPECTED_STATE,
       "something else than a message");
  amqp_frame_t frame;
  must(amqp_simple_wait_frame(connection, &frame) == AMQP_STATUS_OK &&
           frame.frame_type == AMQP_FRAME_METHOD &&
           frame.payload.method.id == AMQP_BASIC_CANCEL_METHOD,
       "basic.cancel");
}

int main(int count, char **words) {
  must(count == 5, "usage: program HOST PORT AUTHORITY QUEUE");
  const char *host = words[1], *authority = words[3];
  int port = atoi(words[2]);
  amqp_bytes_t queue = amqp_cstring_bytes(words[4]);
  char body[16];

  amqp_connection_state_t connection = dial(host, port, authority);
  must(connection != NULL, "the connection");
  say("connected");

  declare(connection, queue);
  amqp_confirm_select(connection, 1);
  must(good(amqp_get_rpc_reply(connection)), "confirm.select");
  for (int number = 0; number < MESSAGES; number++) {
    snprintf(body, sizeof body, "%d", number);
    publish(connection, queue, body);
  }
  wait_for_confirms(connection, 1, MESSAGES);
  say("confirmed");

  amqp_basic_qos(connection, 1, 0, 3, 0);
  consume(connection, queue);
  for (int number = 0; number < MESSAGES; number++) {
    snprintf(body, sizeof body, "%d", number);
    uint64_t tag = receive(connection, body);
    must(amqp_basic_ack(connection, 1, tag, 0) == AMQP_STATUS_OK, "basic.ack");
  }
  say("acked");
  wait_for_cancel(connection);
  say("cancelled");

  declare(connection, queue);
  publish(connection, queue, "kept");
  wait_for_confirms(connection, MESSAGES + 1, MESSAGES + 1);
  consume(connection, queue);
  receive(connection, "kept");
  say("holding");

  amqp_envelope_t envelope;
  must(!good(amqp_consume_message(connection, &envelope, NULL, 0)), "the end of the connection");
  amqp_destroy_connection(connection);
  const struct timespec pause = {0, 100000000};
  while ((connection = dial(host, port, authority)) == NULL) nanosleep(&pause, NULL);
  consume(connection, queue);
  must(amqp_basic_ack(connection, 1, receive(connection, "kept"), 0) == AMQP_STATUS_OK, "the ack");
  say("recovered");

  amqp_queue_delete_ok_t *deleted = amqp_queue_delete(connection, 1, queue, 0, 0);
  must(deleted != NULL && deleted->message_count == 0, "queue.delete");
  must(good(amqp_connection_close(connection, AMQP_REPLY_SUCCESS)), "connection.close");
  amqp_destroy_connection(connection);
  say("closed");
  return 0;
}
