// What test_programs.py says of each program, by amqplib.  It leaves recovery to the program.
'use strict';

const amqp = require('amqplib');
const fs = require('fs');

const MESSAGES = 10;
const [host, port, authority, queue] = process.argv.slice(2);

function expect(good, what) {
  if (!good) throw new Error(what);
}

async function dial() {
  const where = { hostname: host, port: Number(port), username: 'guest', password: 'guest' };
  if (authority === '-') return amqp.connect({ protocol: 'amqp', ...where });
  return amqp.connect({ protocol: 'amqps', ...where }, { ca: [fs.readFileSync(authority)] });
}

// Return a consumer whose `next` waits for a message; null says that the broker cancelled it.
async function consume(channel) {
  const found = [];
  const waiting = [];
  await channel.consume(queue, (message) => {
    if (waiting.length) waiting.shift()(message);
    else found.push(message);
  });
  return {
    next: () => found.length
      ? Promise.resolve(found.shift())
      : new Promise((resolve) => waiting.push(resolve)),
  };
}

function publish(channel, body) {
  channel.sendToQueue(queue, Buffer.from(body), { persistent: true, mandatory: true });
}

async function main() {
  let connection = await dial();
  const closed = new Promise((resolve) => connection.on('close', resolve));
  connection.on('error', () => {});
  let channel = await connection.createConfirmChannel();
  channel.on('error', () => {});
  console.log('connected');

  await channel.assertQueue(queue, { durable: true });
  for (let number = 0; number < MESSAGES; number++) publish(channel, String(number));
  await channel.waitForConfirms();
  console.log('confirmed');

  await channel.prefetch(3);
  let consumer = await consume(channel);
  for (let number = 0; number < MESSAGES; number++) {
    const message = await consumer.next();
    expect(message.content.toString() === String(number), 'the body of a message');
    channel.ack(message);
  }
  console.log('acked');
  expect((await consumer.next()) === null, 'the cancel');
  console.log('cancelled');

  await channel.assertQueue(queue, { durable: true });
  publish(channel, 'kept');
  await channel.waitForConfirms();
  consumer = await consume(channel);
  expect((await consumer.next()).content.toString() === 'kept', 'the message that is held');
  console.log('holding');

  await closed;
  for (;;) {
    try {
      connection = await dial();
      break;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  channel = await connection.createChannel();
  consumer = await consume(channel);
  const again = await consumer.next();
  expect(again.content.toString() === 'kept', 'the message that comes again');
  channel.ack(again);
  console.log('recovered');

  expect((await channel.deleteQueue(queue)).messageCount === 0, 'the queue is empty');
  await connection.close();
  console.log('closed');
}

main().catch((error) => {
  console.error('failed:', error);
  process.exit(1);
});
