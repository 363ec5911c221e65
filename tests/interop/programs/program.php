<?php
// What test_programs.py says of each program, by php-amqp.  It leaves recovery to the program.

const MESSAGES = 10;
[, $host, $port, $authority, $name] = $argv;

function expect(bool $good, string $what): void
{
    if (!$good) {
        fwrite(STDERR, "failed: $what\n");
        exit(1);
    }
}

function say(string $word): void
{
    fwrite(STDOUT, "$word\n");
}

function dial(): AMQPChannel
{
    global $host, $port, $authority;
    $how = ['host' => $host, 'port' => (int) $port, 'login' => 'guest', 'password' => 'guest'];
    if ($authority !== '-') {
        $how += ['cacert' => $authority, 'verify' => true];
    }
    $connection = new AMQPConnection($how);
    $connection->connect();
    return new AMQPChannel($connection);
}

function queue(AMQPChannel $channel): AMQPQueue
{
    global $name;
    $queue = new AMQPQueue($channel);
    $queue->setName($name);
    $queue->setFlags(AMQP_DURABLE);
    return $queue;
}

function publish(AMQPExchange $exchange, array $bodies): void
{
    global $name;
    foreach ($bodies as $body) {
        $exchange->publish($body, $name, AMQP_MANDATORY, ['delivery_mode' => 2]);
    }
}

function wait_for_confirms(AMQPChannel $channel, int $last): void
{
    $channel->setConfirmCallback(
        fn ($tag, $multiple) => $tag < $last,
        function () { expect(false, 'a confirm that is no nack'); }
    );
    $channel->waitForConfirm();
}

// Receive as many messages as there are bodies; what is not acked is kept.
function receive(AMQPQueue $queue, array $bodies, bool $ack): void
{
    $queue->consume(function (AMQPEnvelope $message, AMQPQueue $queue) use (&$bodies, $ack) {
        expect($message->getBody() === array_shift($bodies), 'the body of a message');
        if ($ack) {
            $queue->ack($message->getDeliveryTag());
        }
        return count($bodies) > 0;
    });
}

// Wait with the consumer that is there, until the connection ends.
function wait_for_end(AMQPQueue $queue): void
{
    try {
        $queue->consume(fn () => true, AMQP_JUST_CONSUME);
    } catch (AMQPException $end) {
        return;
    }
    expect(false, 'the end of the connection');
}

// php-amqp does not tell a broker that it takes basic.cancel, and so none is sent.  A program that
// hears nothing looks whether its queue is still there.
function wait_until_deleted(AMQPQueue $queue): void
{
    $connection = $queue->getConnection();
    $connection->setReadTimeout(0.2);
    while (true) {
        try {
            $queue->consume(fn () => true, AMQP_JUST_CONSUME);
        } catch (AMQPQueueException $nothing) {
            expect($nothing->getMessage() === 'Consumer timeout exceed', $nothing->getMessage());
        }
        try {
            $looking = queue(new AMQPChannel($connection));
            $looking->setFlags(AMQP_PASSIVE);
            $looking->declareQueue();
        } catch (AMQPQueueException $missing) {
            expect($missing->getCode() === 404, $missing->getMessage());
            break;
        }
    }
    $connection->setReadTimeout(0);
}

// A confirm, a return and a confirm: `waitForConfirm` hands on what comes next, and counts nothing.
function expect_a_return_between_confirms(AMQPConnection $connection): void
{
    $got = [];
    $channel = new AMQPChannel($connection);
    $channel->confirmSelect();
    $channel->setConfirmCallback(function ($tag, $multiple) use (&$got) {
        $got[] = $multiple ? "up to $tag" : "$tag";
        return false;
    });
    $channel->setReturnCallback(function () use (&$got) {
        $got[] = 'returned';
        return false;
    });
    $exchange = new AMQPExchange($channel);
    $exchange->publish('dropped', 'no such queue');
    $exchange->publish('returned', 'no such queue', AMQP_MANDATORY);
    foreach (['1', 'returned', '2'] as $answer) {
        $channel->waitForConfirm(60.0);
        expect(end($got) === $answer, "$answer, not " . implode(', ', $got));
    }
    $channel->close();
}

$channel = dial();
say('connected');
expect_a_return_between_confirms($channel->getConnection());

$numbers = array_map('strval', range(0, MESSAGES - 1));
$queue = queue($channel);
$queue->declareQueue();
$exchange = new AMQPExchange($channel);
$channel->confirmSelect();
publish($exchange, $numbers);
wait_for_confirms($channel, MESSAGES);
say('confirmed');

$channel->qos(0, 3);
receive($queue, $numbers, true);
say('acked');
wait_until_deleted($queue);
say('cancelled');

$queue = queue($channel);
$queue->declareQueue();
publish($exchange, ['kept']);
wait_for_confirms($channel, MESSAGES + 1);
receive($queue, ['kept'], false);
say('holding');

wait_for_end($queue);
while (true) {
    try {
        $channel = dial();
        break;
    } catch (AMQPConnectionException $refused) {
        usleep(100_000);
    }
}
$queue = queue($channel);
receive($queue, ['kept'], true);
say('recovered');

$queue->cancel($queue->getConsumerTag());
expect($queue->delete() === 0, 'the queue is empty');
$channel->getConnection()->disconnect();
say('closed');
