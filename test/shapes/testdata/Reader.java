import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads partition 0 of topics with the Java client. Arguments: bootstrap, isolation level, then topic=end ... */
public class Reader {
    public static void main(String[] args) throws Exception {
        Map<TopicPartition, Long> ends = new TreeMap<>(Comparator.comparing(TopicPartition::topic));
        for (int i = 2; i < args.length; i++) {
            int eq = args[i].lastIndexOf('=');
            ends.put(new TopicPartition(args[i].substring(0, eq), 0), Long.parseLong(args[i].substring(eq + 1)));
        }
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("isolation.level", args[1]);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "none");
        config.put("max.poll.records", "10000");
        StringBuilder out = new StringBuilder();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(ends.keySet());
            consumer.seekToBeginning(ends.keySet());
            long deadline = System.nanoTime() + 480_000_000_000L;
            boolean done = false;
            while (!done && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    append(out, r);
                }
                done = true;
                for (Map.Entry<TopicPartition, Long> e : ends.entrySet()) {
                    done = done && consumer.position(e.getKey()) >= e.getValue();
                }
            }
            for (TopicPartition tp : ends.keySet()) {
                out.append(tp.topic()).append(" end ").append(consumer.position(tp)).append('\n');
            }
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    static void append(StringBuilder out, ConsumerRecord<byte[], byte[]> r) {
        out.append(r.topic()).append(' ').append(r.offset()).append(' ').append(r.timestamp()).append(' ');
        text(out, r.key());
        out.append(' ');
        text(out, r.value());
        for (Header h : r.headers()) {
            out.append(' ');
            text(out, h.key().getBytes(StandardCharsets.UTF_8));
            out.append('=');
            text(out, h.value());
        }
        out.append('\n');
    }

    static void text(StringBuilder out, byte[] b) {
        if (b == null) {
            out.append('-');
            return;
        }
        if (b.length > 200) {
            CRC32 crc = new CRC32();
            crc.update(b);
            out.append('#').append(b.length).append(':').append(crc.getValue());
            return;
        }
        out.append('x').append(HexFormat.of().formatHex(b));
    }
}
