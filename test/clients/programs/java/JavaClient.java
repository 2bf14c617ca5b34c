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
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

/** Java kafka-clients, one source for 2.8 and later. */
public class JavaClient {
    static class Skip extends RuntimeException { Skip(String why) { super(why); } }
    interface Check { String run() throws Exception; }

    static final String BOOTSTRAP = System.getenv("BOOTSTRAP"), CLIENT = System.getenv("CLIENT");
    static final int N = Integer.parseInt(System.getenv().getOrDefault("N", "2000"));
    static final Map<String, Check> checks = new HashMap<>();

    public static void main(String[] args) {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
            checks.put(codec, () -> roundTrip(codec, "compression.type", codec, "enable.idempotence", "false"));
        checks.put("idempotent", () -> roundTrip("idempotent", "enable.idempotence", "true"));
        checks.put("acks0", () -> roundTrip("acks0", "acks", "0", "enable.idempotence", "false"));
        checks.put("acks1", () -> roundTrip("acks1", "acks", "1", "enable.idempotence", "false"));
        checks.put("metadata", JavaClient::metadata);
        checks.put("coordinator", JavaClient::coordinator);
        checks.put("create", JavaClient::create);
        checks.put("headers", JavaClient::headers);
        checks.put("large", JavaClient::large);
        checks.put("seek", JavaClient::seek);
        checks.put("offsets", JavaClient::offsets);
        checks.put("group", () -> group("group"));
        checks.put("group848", () -> {
            if (version() < 307) throw new Skip("the client predates KIP-848");
            return group("group848", "group.protocol", "consumer");
        });
        checks.put("static", JavaClient::staticMembers);
        checks.put("txn", JavaClient::txn);
        checks.put("share", JavaClient::share);
        checks.put("groups", JavaClient::groups);
        checks.put("configs", JavaClient::configs);
        checks.put("partitions", JavaClient::partitions);
        checks.put("delrecords", JavaClient::deleteRecords);
        checks.put("deltopic", JavaClient::deleteTopic);
        checks.put("many", JavaClient::many);
        checks.put("leader", JavaClient::leader);
        for (String name : System.getenv("CHECKS").split(",")) {
            System.out.println("@start " + name);
            Check check = name.startsWith("gaps:") ? () -> gap(name.substring(5)) : checks.get(name);
            try {
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

    // --- shared parts ---

    static int version() {
        Properties p = new Properties();
        try (java.io.InputStream in = Producer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            p.load(in);
        } catch (java.io.IOException e) {
            throw new RuntimeException(e);
        }
        String[] v = p.getProperty("version").split("\\.");
        return Integer.parseInt(v[0]) * 100 + Integer.parseInt(v[1]);
    }
    static String name(String check) { return "kc-" + System.getenv("RUNID") + "-" + CLIENT + "-" + check; }
    static byte[] key(int i) { return ("k" + i).getBytes(); }
    static String value(int i) { return "v" + i + "-" + "abcdefghij".repeat(10); }
    static String text(byte[] b) { return b == null ? null : new String(b, StandardCharsets.UTF_8); }
    static void check(boolean ok, String why) { if (!ok) throw new AssertionError(why); }

    static void allowed(String host, int port) {
        for (String a : System.getenv("ALLOWED").split(",")) {
            int colon = a.lastIndexOf(':');
            String[] r = a.substring(colon + 1).split("-");
            int lo = Integer.parseInt(r[0]), hi = Integer.parseInt(r[r.length - 1]);
            if (a.substring(0, colon).equals(host) && lo <= port && port <= hi) return;
        }
        throw new AssertionError("LEAK: address " + host + ":" + port + " is not in " + System.getenv("ALLOWED"));
    }
    static String allowed(Node n) { allowed(n.host(), n.port()); return n.host() + ":" + n.port(); }

    static Properties props(String... kv) {
        Properties p = new Properties();
        p.put("bootstrap.servers", BOOTSTRAP);
        p.put("client.id", CLIENT);
        for (int i = 0; i < kv.length; i += 2) p.put(kv[i], kv[i + 1]);
        return p;
    }
    static Admin admin() { return Admin.create(props("request.timeout.ms", "20000", "default.api.timeout.ms", "100000")); }
    static Producer<byte[], byte[]> producer(String... kv) {
        return new KafkaProducer<>(props(kv), new ByteArraySerializer(), new ByteArraySerializer());
    }
    static Consumer<byte[], byte[]> consumer(String... kv) {
        Properties p = props("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        p.putAll(props(kv));
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
    static String makeTopic(String check, int parts) throws Exception {
        try (Admin a = admin()) {
            a.createTopics(List.of(new NewTopic(name(check), parts, (short) 1))).all().get();
            // until the broker leads it: before, acks=0 is lost and a retry without idempotence may reorder
            for (long end = System.currentTimeMillis() + 80000; ; Thread.sleep(50)) {
                try {
                    a.listOffsets(tps(name(check), parts).stream().collect(Collectors.toMap(tp -> tp, tp -> OffsetSpec.latest()))).all().get();
                    break;
                } catch (ExecutionException e) {
                    if (System.currentTimeMillis() > end) throw e;
                }
            }
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
    /** Everything in the partitions, read until the end offsets and at least n records. */
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
    @SuppressWarnings("unchecked")
    static TopicDescription describe(Admin a, String topic) throws Exception {
        DescribeTopicsResult r = a.describeTopics(List.of(topic)); // all() before 3.1, allTopicNames() since
        KafkaFuture<Map<String, TopicDescription>> f = (KafkaFuture<Map<String, TopicDescription>>)
            DescribeTopicsResult.class.getMethod(version() < 301 ? "all" : "allTopicNames").invoke(r);
        return f.get().get(topic);
    }

    // --- checks ---

    static String metadata() throws Exception {
        try (Admin a = admin()) {
            DescribeClusterResult r = a.describeCluster();
            String seen = "";
            for (Node n : r.nodes().get()) seen += allowed(n) + " ";
            allowed(r.controller().get());
            check(r.clusterId().get() != null, "no cluster id");
            return seen + "cluster " + r.clusterId().get();
        }
    }
    static String coordinator() throws Exception {
        String topic = makeTopic("coordinator", 1), group = name("coordinator"), seen;
        produce(topic, 1, 0, 1);
        try (Consumer<byte[], byte[]> c = consumer("group.id", group); Admin a = admin();
             Producer<byte[], byte[]> p = producer("transactional.id", group)) {
            c.assign(tps(topic, 1));
            c.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
            seen = "group " + allowed(a.describeConsumerGroups(List.of(group)).all().get().get(group).coordinator());
            p.initTransactions();
            if (version() >= 300) { // describeTransactions tells the coordinator only as an id
                Object d = ((KafkaFuture<?>) Class.forName("org.apache.kafka.clients.admin.DescribeTransactionsResult").getMethod("description", String.class)
                    .invoke(Admin.class.getMethod("describeTransactions", Collection.class).invoke(a, List.of(group)), group)).get();
                seen += ", transaction " + d.getClass().getMethod("coordinatorId").invoke(d);
            }
        }
        return seen;
    }
    static String create() throws Exception {
        String topic = makeTopic("create", 3);
        try (Admin a = admin()) {
            TopicDescription d = describe(a, topic);
            check(d.partitions().size() == 3, d.partitions().size() + " partitions");
            for (TopicPartitionInfo p : d.partitions()) {
                allowed(p.leader());
                for (Node n : p.replicas()) allowed(n);
                for (Node n : p.isr()) allowed(n);
            }
            try {
                makeTopic("create", 3);
                throw new AssertionError("created twice");
            } catch (ExecutionException e) {
                check(e.getCause() instanceof org.apache.kafka.common.errors.TopicExistsException, "" + e.getCause());
            }
            return "3 partitions; again: TopicExistsException";
        }
    }
    static String headers() throws Exception {
        String topic = makeTopic("headers", 1);
        long now = System.currentTimeMillis() - 60000;
        try (Producer<byte[], byte[]> p = producer()) {
            ProducerRecord<byte[], byte[]> r = new ProducerRecord<>(topic, 0, now, null, "nullkey".getBytes());
            r.headers().add("h", "1".getBytes()).add("h", "2".getBytes()).add("null", null).add("empty", new byte[0]);
            p.send(r).get();
            p.send(new ProducerRecord<>(topic, 0, now + 1, "nullvalue".getBytes(), (byte[]) null)).get();
            p.send(new ProducerRecord<>(topic, 0, now + 2, new byte[0], new byte[0])).get();
        }
        List<ConsumerRecord<byte[], byte[]>> got = readAll(topic, 1, 3).get(0);
        check(got.size() == 3, got.size() + " records");
        check(got.get(0).key() == null && text(got.get(0).value()).equals("nullkey"), "null key");
        Header[] hs = got.get(0).headers().toArray();
        check(hs.length == 4 && text(hs[0].value()).equals("1") && text(hs[1].value()).equals("2") && hs[2].value() == null && hs[3].value().length == 0, "headers " + Arrays.toString(hs));
        check(got.get(1).value() == null && text(got.get(1).key()).equals("nullvalue"), "null value");
        check(got.get(2).key().length == 0 && got.get(2).value().length == 0, "empty key and value");
        for (int i = 0; i < 3; i++) check(got.get(i).timestamp() == now + i, "timestamp " + got.get(i).timestamp());
        return "null and empty keys and values, 4 headers, timestamps";
    }
    static String large() throws Exception {
        String topic = makeTopic("large", 1);
        byte[] big = new byte[900_000];
        new Random(1).nextBytes(big);
        try (Producer<byte[], byte[]> p = producer()) {
            p.send(new ProducerRecord<>(topic, big)).get();
        }
        check(Arrays.equals(big, readAll(topic, 1, 1).get(0).get(0).value()), "value differs");
        return "900000 bytes";
    }
    static String seek() throws Exception {
        String topic = makeTopic("seek", 1);
        produce(topic, 1, 0, 100);
        try (Consumer<byte[], byte[]> c = consumer("max.poll.records", "10")) {
            TopicPartition tp = new TopicPartition(topic, 0);
            c.assign(List.of(tp));
            c.seek(tp, 0);
            check(pollSome(c).get(0).offset() == 0, "first record is not 0");
            c.pause(List.of(tp));
            for (int i = 0; i < 5; i++) check(c.poll(Duration.ofMillis(100)).isEmpty(), "records while paused");
            c.resume(List.of(tp));
            c.seek(tp, 50);
            check(pollSome(c).get(0).offset() == 50, "seek to 50");
            c.seekToEnd(List.of(tp));
            check(c.position(tp) == 100, "end is " + c.position(tp));
            c.seekToBeginning(List.of(tp));
            check(pollSome(c).get(0).offset() == 0, "seek to the beginning");
        }
        return "pause, resume, seek to 50, end, beginning";
    }
    static List<ConsumerRecord<byte[], byte[]>> pollSome(Consumer<byte[], byte[]> c) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        for (int i = 0; i < 100 && got.isEmpty(); i++) c.poll(Duration.ofMillis(100)).forEach(got::add);
        check(!got.isEmpty(), "no records in 10 s");
        return got;
    }
    static String offsets() throws Exception {
        String topic = makeTopic("offsets", 1);
        TopicPartition tp = new TopicPartition(topic, 0);
        long t = System.currentTimeMillis() - 60000;
        try (Producer<byte[], byte[]> p = producer()) {
            for (int i = 0; i < 10; i++) p.send(new ProducerRecord<>(topic, 0, t + i * 1000, null, key(i))).get();
        }
        try (Consumer<byte[], byte[]> c = consumer(); Admin a = admin()) {
            OffsetAndTimestamp o = c.offsetsForTimes(Map.of(tp, t + 4500)).get(tp);
            check(o.offset() == 5 && o.timestamp() == t + 5000, "" + o);
            check(c.offsetsForTimes(Map.of(tp, t + 99000)).get(tp) == null, "an offset after the last timestamp");
            check(c.beginningOffsets(List.of(tp)).get(tp) == 0 && c.endOffsets(List.of(tp)).get(tp) == 10, "beginning or end");
            check(a.listOffsets(Map.of(tp, OffsetSpec.forTimestamp(t + 4500))).all().get().get(tp).offset() == 5, "Admin.listOffsets");
            String max = "";
            if (version() >= 300) {
                OffsetSpec spec = (OffsetSpec) OffsetSpec.class.getMethod("maxTimestamp").invoke(null);
                check(a.listOffsets(Map.of(tp, spec)).all().get().get(tp).offset() == 9, "maxTimestamp");
                max = ", max timestamp";
            }
            return "by timestamp, earliest, latest" + max;
        }
    }
    /** Polls both until cond or 25 s. */
    static void pollBoth(List<Consumer<byte[], byte[]>> cs, java.util.function.Consumer<ConsumerRecord<byte[], byte[]>> got, Callable<Boolean> cond) throws Exception {
        for (long end = System.currentTimeMillis() + 100000; System.currentTimeMillis() < end && !cond.call(); )
            for (Consumer<byte[], byte[]> c : cs) c.poll(Duration.ofMillis(50)).forEach(got);
        check(cond.call(), "not reached in 25 s: assignments " + cs.stream().map(c -> c.assignment().size()).collect(Collectors.toList()));
    }
    static long positions(Consumer<byte[], byte[]> c) {
        try {
            return c.assignment().stream().mapToLong(tp -> c.position(tp, Duration.ofMillis(500))).sum();
        } catch (org.apache.kafka.common.errors.TimeoutException e) {
            return -1; // not known yet; the other member must poll
        }
    }
    static String group(String check, String... kv) throws Exception {
        String topic = makeTopic(check, 4), group = name(check);
        String[] all = Arrays.copyOf(kv, kv.length + 2);
        all[kv.length] = "group.id";
        all[kv.length + 1] = group;
        produce(topic, 4, 0, N);
        Set<String> seen = new HashSet<>();
        Consumer<byte[], byte[]> a = consumer(all), b = consumer(all);
        try (a; b; Admin adm = admin()) {
            a.subscribe(List.of(topic));
            b.subscribe(List.of(topic));
            pollBoth(List.of(a, b), r -> seen.add(text(r.key())), () -> a.assignment().size() == 2 && b.assignment().size() == 2 && positions(a) + positions(b) == N);
            check(seen.size() == N, seen.size() + " records");
            ConsumerGroupDescription d = adm.describeConsumerGroups(List.of(group)).all().get().get(group);
            check(d.members().size() == 2, d.members().size() + " members");
            allowed(d.coordinator());
            a.commitSync();
            b.commitSync();
        }
        produce(topic, 4, N, N + 100);
        try (Admin adm = admin()) {
            Map<TopicPartition, OffsetAndMetadata> committed = adm.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            long lag = 0;
            for (TopicPartition tp : tps(topic, 4))
                lag += adm.listOffsets(Map.of(tp, OffsetSpec.latest())).all().get().get(tp).offset() - committed.get(tp).offset();
            check(lag == 100, "lag " + lag);
        }
        Set<String> after = new HashSet<>();
        try (Consumer<byte[], byte[]> c = consumer(all)) {
            c.subscribe(List.of(topic));
            pollBoth(List.of(c), r -> after.add(text(r.key())), () -> after.size() >= 100 && c.assignment().size() == 4);
            c.poll(Duration.ofMillis(300)).forEach(r -> after.add(text(r.key())));
            c.commitSync();
        }
        check(after.size() == 100 && after.contains("k" + N), "after the restart: " + after.size() + " records");
        return "2 members, " + N + " records, lag 100, restart read 100";
    }
    static String staticMembers() throws Exception {
        String topic = makeTopic("static", 4), group = name("static");
        produce(topic, 4, 0, 40);
        int[] revoked = {0};
        ConsumerRebalanceListener count = new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> p) { revoked[0] += p.size(); }
            public void onPartitionsAssigned(Collection<TopicPartition> p) { }
        };
        Consumer<byte[], byte[]> a = consumer("group.id", group, "group.instance.id", "one"), b = consumer("group.id", group, "group.instance.id", "two");
        try (b; Admin adm = admin()) {
            a.subscribe(List.of(topic));
            b.subscribe(List.of(topic), count);
            pollBoth(List.of(a, b), r -> { }, () -> a.assignment().size() == 2 && b.assignment().size() == 2);
            Set<TopicPartition> before = a.assignment();
            int revokedBefore = revoked[0];
            a.close();
            try (Consumer<byte[], byte[]> a2 = consumer("group.id", group, "group.instance.id", "one")) {
                a2.subscribe(List.of(topic));
                pollBoth(List.of(a2, b), r -> { }, () -> a2.assignment().size() == 2);
                check(a2.assignment().equals(before), "the restarted member got " + a2.assignment() + ", had " + before);
                check(revoked[0] == revokedBefore, "the other member was rebalanced");
                Set<String> ids = adm.describeConsumerGroups(List.of(group)).all().get().get(group).members().stream().map(m -> m.groupInstanceId().orElse("none")).collect(Collectors.toSet());
                check(ids.equals(Set.of("one", "two")), "instance ids " + ids);
            }
        }
        return "restart kept the partitions, without a rebalance";
    }
    static String txn() throws Exception {
        String topic = makeTopic("txn", 1), group = name("txn");
        try (Producer<byte[], byte[]> p = producer("transactional.id", name("txn"))) {
            p.initTransactions();
            for (int t = 0; t < 3; t++) {
                p.beginTransaction();
                for (int i = 0; i < 5; i++) p.send(new ProducerRecord<>(topic, ("t" + t).getBytes()));
                if (t == 0) p.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(3)), new ConsumerGroupMetadata(group));
                if (t == 1) { p.flush(); p.abortTransaction(); } else p.commitTransaction();
            }
        }
        List<ConsumerRecord<byte[], byte[]>> committed = readAll(topic, 1, 10, "isolation.level", "read_committed").get(0), all = readAll(topic, 1, 15).get(0);
        check(committed.size() == 10 && committed.stream().noneMatch(r -> text(r.value()).equals("t1")), "read_committed: " + committed.size());
        check(all.size() == 15, "read_uncommitted: " + all.size());
        try (Admin a = admin()) {
            long o = a.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(new TopicPartition(topic, 0)).offset();
            check(o == 3, "the transaction's offset is " + o);
        }
        return "2 commits, 1 abort, offsets in a transaction";
    }
    static String share() throws Exception {
        if (version() < 401) throw new Skip("the client has no share consumer");
        try (Admin a = admin()) {
            FinalizedVersionRange r = a.describeFeatures().featureMetadata().get().finalizedFeatures().get("share.version");
            if (r == null || r.maxVersionLevel() < 1) throw new Skip("share.version is not enabled on the cluster");
        }
        return (String) Class.forName("ShareCheck").getMethod("run").invoke(null);
    }
    static String groups() throws Exception {
        String topic = makeTopic("groups", 1), group = name("groups");
        produce(topic, 1, 0, 10);
        TopicPartition tp = new TopicPartition(topic, 0);
        try (Consumer<byte[], byte[]> c = consumer("group.id", group)) {
            c.assign(List.of(tp));
            c.commitSync(Map.of(tp, new OffsetAndMetadata(4, "meta")));
            check(c.committed(Set.of(tp)).get(tp).metadata().equals("meta"), "metadata");
        }
        try (Admin a = admin()) {
            check(a.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "not listed");
            allowed(a.describeConsumerGroups(List.of(group)).all().get().get(group).coordinator());
            a.alterConsumerGroupOffsets(group, Map.of(tp, new OffsetAndMetadata(7))).all().get();
            check(a.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(tp).offset() == 7, "altered offset");
            a.deleteConsumerGroupOffsets(group, Set.of(tp)).all().get();
            a.deleteConsumerGroups(List.of(group)).all().get();
            check(a.listConsumerGroups().all().get().stream().noneMatch(g -> g.groupId().equals(group)), "still listed");
        }
        return "list, describe, alter and delete offsets, delete";
    }
    static String configs() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, makeTopic("configs", 1));
        try (Admin a = admin()) {
            a.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "12345678"), AlterConfigOp.OpType.SET)))).all().get();
            String got = null;
            for (int i = 0; i < 1200 && !"12345678".equals(got); i++, Thread.sleep(50))
                got = a.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value();
            check("12345678".equals(got), "retention.ms " + got);
            String id = a.describeCluster().nodes().get().iterator().next().idString();
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, id);
            Config c = a.describeConfigs(List.of(broker)).all().get().get(broker);
            check(c.entries().size() > 50, c.entries().size() + " broker configs");
            String adv = c.get("advertised.listeners") == null ? "" : c.get("advertised.listeners").value();
            return "topic retention.ms, " + c.entries().size() + " broker configs; advertised.listeners=" + adv;
        }
    }
    static String partitions() throws Exception {
        String topic = makeTopic("partitions", 1);
        try (Admin a = admin()) {
            a.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            int n = 0;
            for (int i = 0; i < 1200 && n != 4; i++, Thread.sleep(50)) n = describe(a, topic).partitions().size();
            check(n == 4, n + " partitions");
        }
        return "1 to 4";
    }
    static String deleteRecords() throws Exception {
        String topic = makeTopic("delrecords", 1);
        produce(topic, 1, 0, 10);
        TopicPartition tp = new TopicPartition(topic, 0);
        try (Admin a = admin()) {
            check(a.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(5))).all().get() == null, "");
            check(a.listOffsets(Map.of(tp, OffsetSpec.earliest())).all().get().get(tp).offset() == 5, "earliest is not 5");
        }
        check(readAll(topic, 1, 5).get(0).get(0).offset() == 5, "first record is not 5");
        return "first 5 of 10";
    }
    static String deleteTopic() throws Exception {
        String topic = makeTopic("deltopic", 1);
        try (Admin a = admin()) {
            a.deleteTopics(List.of(topic)).all().get();
            boolean there = true;
            for (int i = 0; i < 1200 && there; i++, Thread.sleep(50)) there = a.listTopics().names().get().contains(topic);
            check(!there, "still listed");
        }
        return "";
    }
    static String many() throws Exception {
        String topic = makeTopic("many", 200);
        try (Admin a = admin()) {
            TopicDescription d = describe(a, topic);
            check(d.partitions().size() == 200, d.partitions().size() + " partitions");
            for (TopicPartitionInfo p : d.partitions()) allowed(p.leader());
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
