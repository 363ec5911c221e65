// What test_programs.py says of each program, by Java's client, which recovers by itself.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.MessageProperties;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Program {
  static final int MESSAGES = 10;

  record Delivery(String body, long tag) {}

  static void expect(boolean good, String what) {
    if (!good) {
      throw new IllegalStateException(what);
    }
  }

  static SSLContext trusting(String authority) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (InputStream file = new FileInputStream(authority)) {
      CertificateFactory factory = CertificateFactory.getInstance("X.509");
      store.setCertificateEntry("authority", factory.generateCertificate(file));
    }
    TrustManagerFactory trust =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return context;
  }

  static void consume(
      Channel channel, String queue, BlockingQueue<Delivery> found, CountDownLatch cancelled)
      throws IOException {
    channel.basicConsume(
        queue,
        false,
        new DefaultConsumer(channel) {
          @Override
          public void handleDelivery(
              String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
            found.add(new Delivery(new String(body), envelope.getDeliveryTag()));
          }

          @Override
          public void handleCancel(String tag) {
            cancelled.countDown();
          }
        });
  }

  static void publish(Channel channel, String queue, String body) throws IOException {
    channel.basicPublish(
        "", queue, true, MessageProperties.PERSISTENT_TEXT_PLAIN, body.getBytes());
  }

  public static void main(String[] words) throws Exception {
    String queue = words[3];
    ConnectionFactory factory = new ConnectionFactory();
    factory.setHost(words[0]);
    factory.setPort(Integer.parseInt(words[1]));
    factory.setNetworkRecoveryInterval(200);
    if (!words[2].equals("-")) {
      factory.useSslProtocol(trusting(words[2]));
    }
    Connection connection = factory.newConnection();
    Channel channel = connection.createChannel();
    System.out.println("connected");

    channel.queueDeclare(queue, true, false, false, null);
    channel.confirmSelect();
    for (int number = 0; number < MESSAGES; number++) {
      publish(channel, queue, Integer.toString(number));
    }
    channel.waitForConfirmsOrDie();
    System.out.println("confirmed");

    channel.basicQos(3);
    CountDownLatch cancelled = new CountDownLatch(1);
    BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
    consume(channel, queue, deliveries, cancelled);
    for (int number = 0; number < MESSAGES; number++) {
      Delivery delivery = deliveries.take();
      expect(delivery.body().equals(Integer.toString(number)), "the body of a message");
      channel.basicAck(delivery.tag(), false);
    }
    System.out.println("acked");
    cancelled.await();
    System.out.println("cancelled");

    channel.queueDeclare(queue, true, false, false, null);
    publish(channel, queue, "kept");
    channel.waitForConfirmsOrDie();
    consume(channel, queue, deliveries, new CountDownLatch(1));
    expect(deliveries.take().body().equals("kept"), "the message that is held");
    System.out.println("holding");

    // The connection, the channel and the consumers come back, the one that the broker cancelled
    // among them: the client forgets only what it cancelled itself.  So does the message.
    Delivery again = deliveries.take();
    expect(again.body().equals("kept"), "the message that comes again");
    channel.basicAck(again.tag(), false);
    System.out.println("recovered");

    expect(channel.queueDelete(queue).getMessageCount() == 0, "the queue is empty");
    connection.close();
    System.out.println("closed");
  }
}
