"""An application with confluent-kafka (librdkafka). usage: app.py CONTROL TOPIC GROUP

CONTROL is a file that says what to do: "run HOST:PORT", "pause" (finish what was begun), "stop". When the address changes,
what is not acknowledged is given up, as an application does whose cluster is gone, and nobody waits for the consumer to leave
its group there, which can take librdkafka minutes. One line of the ledger on standard
output for each acknowledged record, "A partition offset value", and for each one read, "R partition offset value".
"""
import sys
import threading
import time

from confluent_kafka import Consumer, Producer

control, topic, group = sys.argv[1:]
run, n = 0, 0


def wanted():
    with open(control) as file:
        return file.read().strip()


def acknowledged(error, message):
    if not error:
        print("A", message.partition(), message.offset(), message.value().decode(), flush=True)


while (command := wanted()) != "stop":
    if command == "pause":
        print("P", flush=True)
        while wanted() == "pause":
            time.sleep(0.05)
        continue
    common = {"bootstrap.servers": command.split()[1]}
    producer = Producer(common | {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 60000})
    consumer = Consumer(common | {"group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500, "session.timeout.ms": 6000})
    consumer.subscribe([topic])
    run += 1
    while wanted() == command:
        n += 1
        producer.produce(topic, f"{run}.{n}", str(n), on_delivery=acknowledged)
        producer.poll(0)
        message = consumer.poll(0.002)
        while message is not None and not message.error():
            print("R", message.partition(), message.offset(), message.value().decode(), flush=True)
            message = consumer.poll(0)
    if wanted() == "pause" or wanted() == "stop":
        if producer.flush(60):
            sys.exit("records are left unsent")
        consumer.close()
    else:
        producer.purge()
        threading.Thread(target=consumer.close, daemon=True).start()
