// What test_programs.py says of each program, by Go's client.  It leaves recovery to the program.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/streadway/amqp"
)

const messages = 10

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
}

func expect(good bool, what string) {
	if !good {
		must(fmt.Errorf("%s", what))
	}
}

func dial(host, port, authority string) (*amqp.Connection, error) {
	if authority == "-" {
		return amqp.Dial("amqp://guest:guest@" + host + ":" + port + "/")
	}
	text, err := os.ReadFile(authority)
	must(err)
	trusted := x509.NewCertPool()
	expect(trusted.AppendCertsFromPEM(text), "the authority")
	return amqp.DialTLS("amqps://guest:guest@"+host+":"+port+"/", &tls.Config{RootCAs: trusted})
}

func declare(channel *amqp.Channel, queue string) {
	_, err := channel.QueueDeclare(queue, true, false, false, false, nil)
	must(err)
}

func publish(channel *amqp.Channel, queue, body string) {
	must(channel.Publish("", queue, true, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent,
		Headers:      amqp.Table{"number": int64(1) << 40, "nested": amqp.Table{"deep": "yes"}},
		Body:         []byte(body),
	}))
}

func consume(channel *amqp.Channel, queue string) <-chan amqp.Delivery {
	deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
	must(err)
	return deliveries
}

func receive(deliveries <-chan amqp.Delivery, body string) amqp.Delivery {
	delivery, open := <-deliveries
	expect(open, "the consumer ended")
	expect(string(delivery.Body) == body, "the body of a message")
	expect(delivery.Headers["number"] == int64(1)<<40, "a header of a message")
	return delivery
}

func main() {
	host, port, authority, queue := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	connection, err := dial(host, port, authority)
	must(err)
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	channel, err := connection.Channel()
	must(err)
	fmt.Println("connected")

	declare(channel, queue)
	must(channel.Confirm(false))
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation, messages))
	for number := 0; number < messages; number++ {
		publish(channel, queue, strconv.Itoa(number))
	}
	for number := 0; number < messages; number++ {
		expect((<-confirms).Ack, "a confirm")
	}
	fmt.Println("confirmed")

	must(channel.Qos(3, 0, false))
	cancelled := channel.NotifyCancel(make(chan string, 1))
	deliveries := consume(channel, queue)
	for number := 0; number < messages; number++ {
		must(receive(deliveries, strconv.Itoa(number)).Ack(false))
	}
	fmt.Println("acked")
	<-cancelled
	fmt.Println("cancelled")

	declare(channel, queue)
	publish(channel, queue, "kept")
	expect((<-confirms).Ack, "the last confirm")
	receive(consume(channel, queue), "kept")
	fmt.Println("holding")

	<-closed
	for connection, err = dial(host, port, authority); err != nil; {
		time.Sleep(100 * time.Millisecond)
		connection, err = dial(host, port, authority)
	}
	channel, err = connection.Channel()
	must(err)
	must(receive(consume(channel, queue), "kept").Ack(false))
	fmt.Println("recovered")

	left, err := channel.QueueDelete(queue, false, false, false)
	must(err)
	expect(left == 0, "the queue is empty")
	must(connection.Close())
	fmt.Println("closed")
}
