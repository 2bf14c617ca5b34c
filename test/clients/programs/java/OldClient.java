import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import com.fasterxml.jackson.databind.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

/** Java kafka-clients 2.1, the oldest whose protocol Kafka 4 still speaks (KIP-896): what JavaClient does, as far as its API goes. */
public class OldClient {
    static class Skip extends RuntimeException { Skip(String why) { super(why); } }
    interface Check { String run() throws Exception; }

    static final String BOOTSTRAP = System.getenv("BOOTSTRAP"), CLIENT = System.getenv("CLIENT");
    static final int N = Integer.parseInt(System.getenv().getOrDefault("N", "2000"));

    public static void main(String[] args) {
        Map<String, Check> checks = new HashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
            checks.put(codec, () -> roundTrip(codec, "compression.type", codec));
        checks.put("idempotent", () -> roundTrip("idempotent", "enable.idempotence", "true"));
        checks.put("acks0", () -> roundTrip("acks0", "acks", "0"));
        checks.put("acks1", () -> roundTrip("acks1", "acks", "1"));
        checks.put("metadata", OldClient::metadata);
        checks.put("coordinator", OldClient::coordinator);
        checks.put("create", OldClient::create);
        checks.put("large", OldClient::large);
        checks.put("seek", OldClient::seek);
        checks.put("offsets", OldClient::offsets);
        checks.put("group", OldClient::group);
        checks.put("txn", OldClient::txn);
        checks.put("groups", OldClient::groups);
        checks.put("configs", OldClient::configs);
        checks.put("partitions", OldClient::partitions);
        checks.put("delrecords", OldClient::deleteRecords);
        checks.put("deltopic", OldClient::deleteTopic);
        checks.put("many", OldClient::many);
        checks.put("leader", OldClient::leader);
        for (String name : System.getenv("CHECKS").split(",")) {
            System.out.println("@start " + name);
            Check check = name.startsWith("gaps:") ? () -> gap(name.substring(5)) : checks.get(name);
            try {
                if (check == null) throw new Skip("the client has no API for it");
                report("pass", name, check.run());
            } catch (Skip e) {
                report("skip", name, e.getMessage());
            } catch (Throwable e) {
                e.printStackTrace();
                report("fail", name, e.toString());
            }
        }
        System.exit(0);
    }

    static void report(String what, String name, String text) {
        System.out.println("@" + what + " " + name + " " + String.valueOf(text).replace("\n", " | "));
    }
    static String name(String check) { return "kc-" + System.getenv("RUNID") + "-" + CLIENT + "-" + check; }
    static byte[] key(int i) { return ("k" + i).getBytes(); }
    static String value(int i) { return "v" + i + "-" + "abcdefghij".repeat(10); }
    static String text(byte[] b) { return b == null ? null : new String(b, StandardCharsets.UTF_8); }
    static void check(boolean ok, String why) { if (!ok) throw new AssertionError(why); }

    static String allowed(Node n) {
        for (String a : System.getenv("ALLOWED").split(",")) {
            int colon = a.lastIndexOf(':');
            String[] r = a.substring(colon + 1).split("-");
            int lo = Integer.parseInt(r[0]), hi = Integer.parseInt(r[r.length - 1]);
            if (a.substring(0, colon).equals(n.host()) && lo <= n.port() && n.port() <= hi) return n.host() + ":" + n.port();
        }
        throw new AssertionError("LEAK: address " + n + " is not in " + System.getenv("ALLOWED"));
    }
    static Properties props(String... kv) {
        Properties p = new Properties();
        p.put("bootstrap.servers", BOOTSTRAP);
        p.put("client.id", CLIENT);
        for (int i = 0; i < kv.length; i += 2) p.put(kv[i], kv[i + 1]);
        return p;
    }
    static AdminClient admin() { return AdminClient.create(props("request.timeout.ms", "20000")); }
    static Producer<byte[], byte[]> producer(String... kv) {
        Properties p = props("retries", "100");
        p.putAll(props(kv));
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }
    static Consumer<byte[], byte[]> consumer(String... kv) {
        Properties p = props("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        p.putAll(props(kv));
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
    static String makeTopic(String check, int parts) throws Exception {
        try (AdminClient a = admin(); Consumer<byte[], byte[]> c = consumer()) {
            a.createTopics(List.of(new NewTopic(name(check), parts, (short) 1))).all().get();
            for (long end = System.currentTimeMillis() + 80000; ; Thread.sleep(50)) {
                try {
                    if (a.describeTopics(List.of(name(check))).all().get().get(name(check)).partitions().stream().allMatch(p -> p.leader() != null)) break;
                } catch (ExecutionException e) { // a broker may not know the topic yet
                    if (System.currentTimeMillis() > end) throw e;
                }
                check(System.currentTimeMillis() < end, "no leader");
            }
            c.endOffsets(tps(name(check), parts)); // until the broker leads it: before, acks=0 is lost
        }
        return name(check);
    }
    static List<TopicPartition> tps(String topic, int parts) {
        return IntStream.range(0, parts).mapToObj(p -> new TopicPartition(topic, p)).collect(Collectors.toList());
    }
    static void produce(String topic, int parts, int from, int to, String... kv) throws Exception {
        try (Producer<byte[], byte[]> p = producer(kv)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = from; i < to; i++) sent.add(p.send(new ProducerRecord<>(topic, i % parts, key(i), value(i).getBytes())));
            for (Future<RecordMetadata> f : sent) f.get();
        }
    }
    static List<List<ConsumerRecord<byte[], byte[]>>> readAll(String topic, int parts, int n, String... kv) {
        List<List<ConsumerRecord<byte[], byte[]>>> all = new ArrayList<>();
        for (int p = 0; p < parts; p++) all.add(new ArrayList<>());
        try (Consumer<byte[], byte[]> c = consumer(kv)) {
            List<TopicPartition> tps = tps(topic, parts);
            c.assign(tps);
            c.seekToBeginning(tps);
            int count = 0;
            for (long end = System.currentTimeMillis() + 80000; System.currentTimeMillis() < end; ) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) {
                    all.get(r.partition()).add(r);
                    count++;
                }
                Map<TopicPartition, Long> ends = c.endOffsets(tps);
                if (count >= n && tps.stream().allMatch(tp -> c.position(tp) >= ends.get(tp))) break;
            }
        }
        return all;
    }
    static String compare(List<List<ConsumerRecord<byte[], byte[]>>> all, int n) {
        int count = 0, parts = all.size();
        for (int p = 0; p < parts; p++)
            for (int k = 0; k < all.get(p).size(); k++, count++)
                check(text(all.get(p).get(k).value()).equals(value(k * parts + p)), "partition " + p + " record " + k + " differs");
        check(count == n, "read " + count + " records, not " + n);
        return n + " records in " + parts + " partitions";
    }
    static String roundTrip(String check, String... kv) throws Exception {
        String topic = makeTopic(check, 3);
        produce(topic, 3, 0, N, kv);
        return compare(readAll(topic, 3, N), N);
    }

    static String metadata() throws Exception {
        try (AdminClient a = admin()) {
            DescribeClusterResult r = a.describeCluster();
            String seen = "";
            for (Node n : r.nodes().get()) seen += allowed(n) + " ";
            allowed(r.controller().get());
            return seen + "cluster " + r.clusterId().get();
        }
    }
    static String coordinator() throws Exception {
        String topic = makeTopic("coordinator", 1), group = name("coordinator");
        produce(topic, 1, 0, 1);
        try (Consumer<byte[], byte[]> c = consumer("group.id", group); AdminClient a = admin()) {
            c.assign(tps(topic, 1));
            c.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
            return "group " + allowed(a.describeConsumerGroups(List.of(group)).all().get().get(group).coordinator());
        }
    }
    static String create() throws Exception {
        String topic = makeTopic("create", 3);
        try {
            makeTopic("create", 3);
        } catch (ExecutionException e) {
            check(e.getCause() instanceof org.apache.kafka.common.errors.TopicExistsException, e.toString());
            return "3 partitions; again: TopicExistsException";
        }
        throw new AssertionError(topic + " created twice");
    }
    static String large() throws Exception {
        String topic = makeTopic("large", 1);
        byte[] big = new byte[900_000];
        new Random(1).nextBytes(big);
        try (Producer<byte[], byte[]> p = producer()) {
            p.send(new ProducerRecord<>(topic, big)).get();
        }
        check(Arrays.equals(readAll(topic, 1, 1).get(0).get(0).value(), big), "value differs");
        return "900000 bytes";
    }
    static String seek() throws Exception {
        String topic = makeTopic("seek", 1);
        produce(topic, 1, 0, 100);
        TopicPartition tp = new TopicPartition(topic, 0);
        try (Consumer<byte[], byte[]> c = consumer()) {
            c.assign(List.of(tp));
            c.seek(tp, 50);
            long first = -1;
            for (long end = System.currentTimeMillis() + 10000; first < 0 && System.currentTimeMillis() < end; )
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(200))) first = first < 0 ? r.offset() : first;
            check(first == 50, "first is " + first);
        }
        return "seek to 50";
    }
    static String offsets() throws Exception {
        String topic = makeTopic("offsets", 1);
        TopicPartition tp = new TopicPartition(topic, 0);
        long t = System.currentTimeMillis() - 60000;
        try (Producer<byte[], byte[]> p = producer(); Consumer<byte[], byte[]> c = consumer()) {
            for (int i = 0; i < 10; i++) p.send(new ProducerRecord<>(topic, 0, t + i * 1000L, null, key(i))).get();
            check(c.offsetsForTimes(Map.of(tp, t + 4500)).get(tp).offset() == 5, "offsetsForTimes");
            check(c.beginningOffsets(List.of(tp)).get(tp) == 0 && c.endOffsets(List.of(tp)).get(tp) == 10, "beginning or end");
        }
        return "by timestamp, earliest, latest";
    }
    static String group() throws Exception {
        String topic = makeTopic("group", 4), group = name("group");
        produce(topic, 4, 0, N);
        Set<String> seen = new HashSet<>();
        try (Consumer<byte[], byte[]> a = consumer("group.id", group); Consumer<byte[], byte[]> b = consumer("group.id", group); AdminClient adm = admin()) {
            a.subscribe(List.of(topic));
            b.subscribe(List.of(topic));
            Check both = () -> a.assignment().size() == 2 && b.assignment().size() == 2 && seen.size() == N ? "yes" : null;
            for (long end = System.currentTimeMillis() + 100000; System.currentTimeMillis() < end && both.run() == null; )
                for (Consumer<byte[], byte[]> c : List.of(a, b)) c.poll(Duration.ofMillis(50)).forEach(r -> seen.add(text(r.key())));
            check(both.run() != null, "assignments " + a.assignment() + " " + b.assignment() + ", " + seen.size() + " records");
            allowed(adm.describeConsumerGroups(List.of(group)).all().get().get(group).coordinator());
            for (int i = 0; i < 10; i++) // so that both are at the end of what they own
                for (Consumer<byte[], byte[]> c : List.of(a, b)) c.poll(Duration.ofMillis(100));
            a.commitSync();
            b.commitSync();
        }
        produce(topic, 4, N, N + 100);
        Set<String> after = new HashSet<>();
        try (Consumer<byte[], byte[]> c = consumer("group.id", group)) {
            c.subscribe(List.of(topic));
            for (long end = System.currentTimeMillis() + 100000; System.currentTimeMillis() < end && after.size() < 100; )
                c.poll(Duration.ofMillis(100)).forEach(r -> after.add(text(r.key())));
            c.poll(Duration.ofMillis(300)).forEach(r -> after.add(text(r.key())));
        }
        check(after.size() == 100 && after.contains("k" + N), "after the restart: " + after.size() + " records");
        return "2 members, " + N + " records, restart read 100";
    }
    static String txn() throws Exception {
        String topic = makeTopic("txn", 1), group = name("txn");
        try (Producer<byte[], byte[]> p = producer("transactional.id", name("txn"))) {
            p.initTransactions();
            for (int t = 0; t < 3; t++) {
                p.beginTransaction();
                for (int i = 0; i < 5; i++) p.send(new ProducerRecord<>(topic, ("t" + t).getBytes()));
                if (t == 0) p.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(3)), group);
                if (t == 1) { p.flush(); p.abortTransaction(); } else p.commitTransaction();
            }
        }
        int committed = readAll(topic, 1, 10, "isolation.level", "read_committed").get(0).size(), all = readAll(topic, 1, 15).get(0).size();
        check(committed == 10 && all == 15, "read_committed " + committed + ", read_uncommitted " + all);
        try (AdminClient a = admin()) {
            long o = a.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(new TopicPartition(topic, 0)).offset();
            check(o == 3, "the transaction's offset is " + o);
        }
        return "2 commits, 1 abort, offsets in a transaction";
    }
    static String groups() throws Exception {
        String topic = makeTopic("groups", 1), group = name("groups");
        TopicPartition tp = new TopicPartition(topic, 0);
        produce(topic, 1, 0, 10);
        try (Consumer<byte[], byte[]> c = consumer("group.id", group); AdminClient a = admin()) {
            c.assign(List.of(tp));
            c.commitSync(Map.of(tp, new OffsetAndMetadata(4, "meta")));
            check(c.committed(tp).metadata().equals("meta"), "metadata");
            check(a.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "not listed");
            check(a.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(tp).offset() == 4, "offset");
            a.deleteConsumerGroups(List.of(group)).all().get();
            check(a.listConsumerGroups().all().get().stream().noneMatch(g -> g.groupId().equals(group)), "still listed");
        }
        return "list, offsets, delete";
    }
    static String configs() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, makeTopic("configs", 1));
        try (AdminClient a = admin()) {
            String got = null;
            a.alterConfigs(Map.of(topic, new Config(List.of(new ConfigEntry("retention.ms", "12345678"))))).all().get();
            for (int i = 0; i < 1200 && !"12345678".equals(got); i++, Thread.sleep(50)) {
                try {
                    got = a.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value();
                } catch (ExecutionException e) { // a broker may not know the topic yet
                    got = e.toString();
                }
            }
            check("12345678".equals(got), "retention.ms " + got);
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, a.describeCluster().nodes().get().iterator().next().idString());
            return "topic retention.ms, " + a.describeConfigs(List.of(broker)).all().get().get(broker).entries().size() + " broker configs";
        }
    }
    static String partitions() throws Exception {
        String topic = makeTopic("partitions", 1);
        try (AdminClient a = admin()) {
            a.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            int n = 0;
            for (int i = 0; i < 1200 && n != 4; i++, Thread.sleep(50)) n = a.describeTopics(List.of(topic)).all().get().get(topic).partitions().size();
            check(n == 4, n + " partitions");
        }
        return "1 to 4";
    }
    static String deleteRecords() throws Exception {
        String topic = makeTopic("delrecords", 1);
        produce(topic, 1, 0, 10);
        TopicPartition tp = new TopicPartition(topic, 0);
        try (AdminClient a = admin()) {
            long low = a.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(5))).lowWatermarks().get(tp).get().lowWatermark();
            check(low == 5, "low watermark " + low);
        }
        check(readAll(topic, 1, 5).get(0).get(0).offset() == 5, "first record is not 5");
        return "first 5 of 10";
    }
    static String deleteTopic() throws Exception {
        String topic = makeTopic("deltopic", 1);
        try (AdminClient a = admin()) {
            a.deleteTopics(List.of(topic)).all().get();
            boolean there = true;
            for (int i = 0; i < 1200 && there; i++, Thread.sleep(50)) there = a.listTopics().names().get().contains(topic);
            check(!there, "still listed");
        }
        return "";
    }
    static String many() throws Exception {
        String topic = makeTopic("many", 200);
        try (AdminClient a = admin()) {
            for (TopicPartitionInfo p : a.describeTopics(List.of(topic)).all().get().get(topic).partitions()) allowed(p.leader());
        }
        produce(topic, 200, 0, 200);
        return compare(readAll(topic, 200, 200), 200);
    }
    /** The runner moves the partition's leader while 250 records are written one by one. */
    static String leader() throws Exception {
        String topic = makeTopic("leader", 1);
        Set<String> seen = new HashSet<>();
        int[] read = {0};
        int moving = 250;
        try (Producer<byte[], byte[]> p = producer("enable.idempotence", "true"); Consumer<byte[], byte[]> c = consumer()) {
            c.assign(tps(topic, 1));
            java.util.function.Consumer<Integer> take = ms -> c.poll(Duration.ofMillis(ms)).forEach(r -> { seen.add(text(r.value())); read[0]++; });
            for (int i = 0; i < moving; i++) {
                p.send(new ProducerRecord<>(topic, 0, key(i), value(i).getBytes())).get(90, TimeUnit.SECONDS);
                take.accept(20);
                Thread.sleep(20); // or all would be over before the leader moves
            }
            for (long end = System.currentTimeMillis() + 120000; seen.size() < moving && System.currentTimeMillis() < end; ) take.accept(300);
        }
        for (int i = 0; i < moving; i++) check(seen.contains(value(i)), seen.size() + " of " + moving + " records read, not record " + i);
        return moving + " records, " + (read[0] - moving) + " of them twice";
    }
    static String gap(String label) throws Exception {
        for (JsonNode c : new ObjectMapper().readTree(Files.readAllBytes(Path.of(System.getenv("GAPS"))))) {
            if (!c.get("Label").asText().equals(label)) continue;
            List<String> want = new ArrayList<>(), got = new ArrayList<>();
            for (JsonNode r : c.get("Records")) want.add(r.get("Offset").asText() + "=" + r.get("Value").asText());
            long end = c.get("End").asLong(), pos = -1;
            TopicPartition tp = new TopicPartition(c.get("Topic").asText(), 0);
            try (Consumer<byte[], byte[]> k = consumer("isolation.level", "read_committed", "fetch.max.wait.ms", "200")) {
                k.assign(List.of(tp));
                k.seek(tp, 0);
                for (long stop = System.currentTimeMillis() + 10000; pos < end && System.currentTimeMillis() < stop; pos = k.position(tp))
                    k.poll(Duration.ofMillis(200)).forEach(r -> got.add(r.offset() + "=" + text(r.value())));
            }
            String sum = got.size() + "/" + want.size() + " records, position " + pos + "/" + end;
            check(got.equals(want) && pos == end, sum);
            return sum;
        }
        throw new Skip("no case " + label);
    }
}
