import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;

/**
 * Counts the records of each key, exactly once, and writes every count. It runs until it is killed or its input ends.
 * usage: StreamsApp BOOTSTRAP APPLICATION INPUT OUTPUT STATE-DIR PROTOCOL
 */
public class StreamsApp {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("application.id", args[1]);
        p.put("state.dir", args[4]);
        if (args[5].equals("streams")) p.put("group.protocol", "streams");
        p.put("processing.guarantee", "exactly_once_v2");
        p.put("commit.interval.ms", "200");
        p.put("statestore.cache.max.bytes", "0"); // so that every count is written
        p.put("replication.factor", "2");
        p.put("consumer.session.timeout.ms", "6000");
        p.put("consumer.auto.offset.reset", "earliest");
        StreamsBuilder b = new StreamsBuilder();
        b.stream(args[2], Consumed.with(Serdes.String(), Serdes.String())).groupByKey().count().toStream()
            .to(args[3], Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(b.build(), p);
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.start();
        while (System.in.read() >= 0) { }
        streams.close(Duration.ofSeconds(20));
    }
}
