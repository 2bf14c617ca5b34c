package clients

// client is one program with one version of a library.
type client struct {
	name    string // unique, a part of topic names
	title   string // in the table
	version string // of the library
	quick   bool
	install install
	// checks are those of its own; nil stands for the common ones, and the logs with gaps.
	checks []string
	// known says why a check (or a prefix, ended by *) cannot pass directly against Kafka either: the library's own bugs.
	known map[string]string
}

// commonChecks are tried with every library; one that has no API for a check skips it.
var commonChecks = []string{
	"metadata", "coordinator", "create", "none", "gzip", "snappy", "lz4", "zstd", "idempotent", "acks0", "acks1", "headers", "large", "seek", "offsets",
	"group", "group848", "static", "txn", "share", "groups", "configs", "partitions", "delrecords", "deltopic", "many", leaderCheck,
}

const (
	wireName    = "wire"
	leaderCheck = "leader" // the runner moves the partition's leader during the check
)

var wireChecks = []string{"apiversions", "metadata", "coordinator", "cluster", leaderCheck}

var catalog = []client{
	{name: wireName, title: "raw requests", quick: true, install: golang("wire"), checks: wireChecks},
	{name: "java-4.4.0", title: "Java", version: "4.4.0", quick: true, install: java("4.4.0", "JavaClient", "ShareCheck")},
	{name: "java-4.1.0", title: "Java", version: "4.1.0", install: java("4.1.0", "JavaClient", "ShareCheck")},
	{name: "java-3.9.2", title: "Java", version: "3.9.2", install: java("3.9.2", "JavaClient")},
	{name: "java-2.8.2", title: "Java", version: "2.8.2", install: java("2.8.2", "JavaClient")},
	{name: "java-2.1.1", title: "Java", version: "2.1.1", quick: true, install: java("2.1.1", "OldClient")},
	{name: "confluent", title: "confluent-kafka-python", version: "2.16.1", quick: true, install: python("confluent.py"),
		known: map[string]string{"share": "its share consumer, a preview, gets nothing from some brokers at times"}},
	{name: "kcat", title: "kcat", install: kcat},
	{name: "kafka-python", title: "kafka-python", version: "3.0.12", quick: true, install: python("kafkapython.py"),
		known: map[string]string{"gaps:real-ctl": "it raises on an empty control batch"}},
	{name: "aiokafka", title: "aiokafka", version: "0.14.0", install: python("aio.py"),
		known: map[string]string{"gaps:real-ctl": "it raises on an empty control batch"}},
	{name: "kafkajs", title: "kafkajs", version: "2.2.4", quick: true, install: node("kafkajs.mjs"),
		known: map[string]string{"gaps:real-end": "it refetches an answer with only an empty batch for ever"}},
	{name: "platformatic", title: "@platformatic/kafka", version: "1.35.0", install: node("platformatic.mjs"),
		known: map[string]string{leaderCheck: "a fetch that a broker refuses goes to the same broker again, whoever leads"}},
	{name: "franz-go", title: "franz-go", version: "1.22.3", quick: true, install: golang("franz")},
	{name: "franz-go-2.1", title: "franz-go as of Kafka 2.1", version: "1.22.3", install: golang("franz", "KAFKA=2.1")},
	{name: "franz-go-2.8", title: "franz-go as of Kafka 2.8", version: "1.22.3", install: golang("franz", "KAFKA=2.8")},
	{name: "franz-go-3.6", title: "franz-go as of Kafka 3.6", version: "1.22.3", install: golang("franz", "KAFKA=3.6")},
	{name: "sarama", title: "sarama", version: "1.61.1", install: golang("saramac", "KAFKA=4.1.0")},
	{name: "sarama-2.1", title: "sarama as of Kafka 2.1", version: "1.61.1", install: golang("saramac", "KAFKA=2.1.0")},
	{name: "kafka-go", title: "kafka-go", version: "0.4.51", install: golang("kafkago"),
		known: map[string]string{"gaps:real*": "it panics on two empty batches in a row, and jumps back to offset 1 after an answer with only one"}},
	{name: "rskafka", title: "rskafka", version: "0.6", install: rust,
		known: map[string]string{"gaps:real*": "it cannot parse control batches, and refetches an answer with only an empty batch for ever"}},
}
