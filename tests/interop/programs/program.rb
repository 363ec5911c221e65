# What test_programs.py says of each program, by Bunny, which recovers by itself.

require "bunny"

MESSAGES = 10
host, port, authority, name = ARGV
$stdout.sync = true

def expect(good, what)
  abort "failed: #{what}" unless good
end

def consume(queue, deliveries, cancelled = nil)
  options = { manual_ack: true }
  options[:on_cancellation] = proc { cancelled << true } if cancelled
  queue.subscribe(options) { |info, _, body| deliveries << [info, body] }
end

options = { host: host, port: port.to_i, network_recovery_interval: 0.2, log_level: :fatal }
unless authority == "-"
  options.update(tls: true, tls_ca_certificates: [authority], verify_peer: true)
end
recovered = Queue.new
options[:recovery_completed] = proc { recovered << true }
connection = Bunny.new(options)
connection.start
channel = connection.create_channel
puts "connected"

queue = channel.queue(name, durable: true)
channel.confirm_select
MESSAGES.times { |number| queue.publish(number.to_s, persistent: true, mandatory: true) }
expect channel.wait_for_confirms, "the confirms"
puts "confirmed"

channel.prefetch(3)
deliveries = Queue.new
cancelled = Queue.new
consume(queue, deliveries, cancelled)
MESSAGES.times do |number|
  info, body = deliveries.pop
  expect body == number.to_s, "the body of a message"
  channel.ack(info.delivery_tag)
end
puts "acked"
cancelled.pop
puts "cancelled"

channel.queue_declare(name, durable: true)
queue.publish("kept", persistent: true)
expect channel.wait_for_confirms, "the last confirm"
consume(queue, deliveries)
expect deliveries.pop.last == "kept", "the message that is held"
puts "holding"

# The connection, the channel and the consumer come back; so does the message.
info, body = deliveries.pop
expect body == "kept", "the message that comes again"
channel.ack(info.delivery_tag)
# While it recovers, Bunny would take another answer for ours.
recovered.pop
puts "recovered"

expect queue.delete.message_count.zero?, "the queue is empty"
connection.close
puts "closed"
