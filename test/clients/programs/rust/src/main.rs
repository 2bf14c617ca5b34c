//! rskafka: a minimal Rust client (no groups, no transactions). The runner's protocol is that of go/kit/kit.go.
use std::{collections::BTreeMap, env, future::Future, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::StreamExt;
use rskafka::client::consumer::{StartOffset, StreamConsumerBuilder};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};

type Res = Result<String, Box<dyn std::error::Error>>;

fn var(k: &str) -> String {
    env::var(k).unwrap_or_default()
}
fn name(check: &str) -> String {
    format!("kc-{}-{}-{check}", var("RUNID"), var("CLIENT"))
}
fn value(i: usize) -> Vec<u8> {
    format!("v{i}-{}", "abcdefghij".repeat(10)).into_bytes()
}
fn record(key: Option<Vec<u8>>, value: Option<Vec<u8>>, timestamp: DateTime<Utc>) -> Record {
    Record { key, value, headers: BTreeMap::new(), timestamp }
}
fn ensure(ok: bool, why: impl Into<String>) -> Result<(), Box<dyn std::error::Error>> {
    if ok { Ok(()) } else { Err(why.into().into()) }
}

async fn client() -> Result<Client, Box<dyn std::error::Error>> {
    Ok(ClientBuilder::new(vec![var("BOOTSTRAP")]).client_id(var("CLIENT")).build().await?)
}
async fn partition(c: &Client, topic: &str, p: i32) -> Result<Arc<PartitionClient>, Box<dyn std::error::Error>> {
    Ok(Arc::new(c.partition_client(topic.to_owned(), p, UnknownTopicHandling::Retry).await?))
}
async fn make_topic(c: &Client, check: &str, parts: i32) -> Res {
    c.controller_client()?.create_topic(name(check), parts, 1, 10_000).await?;
    Ok(name(check))
}
async fn read_all(p: Arc<PartitionClient>, end: i64) -> Result<Vec<RecordAndOffset>, Box<dyn std::error::Error>> {
    let mut stream = StreamConsumerBuilder::new(p, StartOffset::Earliest).with_max_wait_ms(200).build();
    let mut got = vec![];
    while got.last().map_or(-1, |r: &RecordAndOffset| r.offset) < end - 1 {
        got.push(tokio::time::timeout(Duration::from_secs(10), stream.next()).await?.ok_or("end of stream")??.0);
    }
    Ok(got)
}

async fn round_trip(codec: &str, compression: Compression) -> Res {
    let (c, n) = (client().await?, var("N").parse().unwrap_or(2000));
    let topic = make_topic(&c, codec, 3).await?;
    for p in 0..3 {
        let pc = partition(&c, &topic, p).await?;
        let is: Vec<usize> = (p as usize..n).step_by(3).collect();
        for chunk in is.chunks(250) {
            let rs = chunk.iter().map(|i| record(Some(format!("k{i}").into_bytes()), Some(value(*i)), Utc::now())).collect();
            pc.produce(rs, compression).await?;
        }
        let got = read_all(pc, is.len() as i64).await?;
        ensure(got.iter().map(|r| r.record.value.clone().unwrap()).eq(is.iter().map(|i| value(*i))), format!("partition {p}: {} records differ", got.len()))?;
    }
    Ok(format!("{n} records in 3 partitions"))
}
async fn create() -> Res {
    let c = client().await?;
    let topic = make_topic(&c, "create", 3).await?;
    let t = c.list_topics().await?.into_iter().find(|t| t.name == topic).ok_or("not listed")?;
    ensure(t.partitions.len() == 3, "not 3 partitions")?;
    ensure(make_topic(&c, "create", 3).await.is_err(), "created twice")?;
    Ok("3 partitions; again: an error".into())
}
async fn headers() -> Res {
    let c = client().await?;
    let p = partition(&c, &make_topic(&c, "headers", 1).await?, 0).await?;
    let now = DateTime::from_timestamp_millis(Utc::now().timestamp_millis() - 60_000).unwrap();
    let mut a = record(None, Some(b"nullkey".to_vec()), now);
    a.headers.insert("h".into(), b"1".to_vec());
    let sent = vec![a, record(Some(b"nullvalue".to_vec()), None, now), record(Some(vec![]), Some(vec![]), now)];
    p.produce(sent.clone(), Compression::NoCompression).await?;
    let got: Vec<Record> = read_all(p, 3).await?.into_iter().map(|r| r.record).collect();
    ensure(got == sent, format!("{got:?}"))?;
    Ok("null and empty keys and values, a header, timestamps".into())
}
async fn large() -> Res {
    let c = client().await?;
    let p = partition(&c, &make_topic(&c, "large", 1).await?, 0).await?;
    p.produce(vec![record(None, Some(vec![b'x'; 900_000]), Utc::now())], Compression::NoCompression).await?;
    ensure(read_all(p, 1).await?[0].record.value.as_ref().unwrap().len() == 900_000, "value differs")?;
    Ok("900000 bytes".into())
}
async fn offsets() -> Res {
    let c = client().await?;
    let p = partition(&c, &make_topic(&c, "offsets", 1).await?, 0).await?;
    let t = DateTime::from_timestamp_millis(Utc::now().timestamp_millis() - 60_000).unwrap();
    for i in 0..10 {
        p.produce(vec![record(None, Some(b"x".to_vec()), t + chrono::TimeDelta::seconds(i))], Compression::NoCompression).await?;
    }
    for (at, want) in [(OffsetAt::Earliest, 0), (OffsetAt::Latest, 10), (OffsetAt::Timestamp(t + chrono::TimeDelta::milliseconds(4500)), 5)] {
        let got = p.get_offset(at).await?;
        ensure(got == want, format!("{at:?} is {got}"))?;
    }
    Ok("by timestamp, earliest, latest".into())
}
async fn delrecords() -> Res {
    let c = client().await?;
    let p = partition(&c, &make_topic(&c, "delrecords", 1).await?, 0).await?;
    p.produce((0..10).map(|i| record(None, Some(value(i)), Utc::now())).collect(), Compression::NoCompression).await?;
    p.delete_records(5, 10_000).await?;
    ensure(p.get_offset(OffsetAt::Earliest).await? == 5, "earliest is not 5")?;
    Ok("first 5 of 10".into())
}
async fn deltopic() -> Res {
    let c = client().await?;
    let topic = make_topic(&c, "deltopic", 1).await?;
    c.controller_client()?.delete_topic(topic.clone(), 10_000).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure(!c.list_topics().await?.iter().any(|t| t.name == topic), "still listed")?;
    Ok(String::new())
}
/// The runner moves the partition's leader meanwhile. There is no idempotence, so records may be there twice.
async fn leader() -> Res {
    const MOVING: usize = 250;
    let c = client().await?;
    let p = partition(&c, &make_topic(&c, "leader", 1).await?, 0).await?;
    for i in 0..MOVING {
        p.produce(vec![record(None, Some(value(i)), Utc::now())], Compression::NoCompression).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let end = p.get_offset(OffsetAt::Latest).await?;
    let got = read_all(p, end).await?;
    for i in 0..MOVING {
        ensure(got.iter().any(|r| r.record.value.as_ref() == Some(&value(i))), format!("record {i} was not read"))?;
    }
    Ok(format!("{MOVING} records, {} of them twice", got.len() - MOVING))
}
async fn gap(label: String) -> Res {
    let cases: serde_json::Value = serde_json::from_slice(&std::fs::read(var("GAPS"))?)?;
    let case = cases.as_array().unwrap().iter().find(|c| c["Label"] == label.as_str()).ok_or("no such case")?;
    let want: Vec<(i64, String)> =
        case["Records"].as_array().map(|a| a.iter().map(|r| (r["Offset"].as_i64().unwrap(), r["Value"].as_str().unwrap().to_owned())).collect()).unwrap_or_default();
    let p = partition(&client().await?, case["Topic"].as_str().unwrap(), 0).await?;
    let mut stream = StreamConsumerBuilder::new(p, StartOffset::At(0)).with_max_wait_ms(200).build();
    let mut got: Vec<(i64, String)> = vec![];
    while let Ok(next) = tokio::time::timeout(if got.len() < want.len() { Duration::from_secs(8) } else { Duration::from_millis(700) }, stream.next()).await {
        let r = next.ok_or("end of stream")??.0;
        got.push((r.offset, String::from_utf8_lossy(&r.record.value.unwrap_or_default()).into_owned()));
        if got.len() > want.len() + 5 {
            break;
        }
    }
    let sum = format!("{}/{} records, position -1/{}", got.len(), want.len(), case["End"]);
    let odd = got.iter().zip(&want).find(|(g, w)| g != w);
    ensure(got == want, format!("{sum}: {odd:?}"))?;
    Ok(sum)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for check in var("CHECKS").split(',') {
        println!("@start {check}");
        let res = match check {
            "none" => run(round_trip("none", Compression::NoCompression)).await,
            "gzip" => run(round_trip("gzip", Compression::Gzip)).await,
            "snappy" => run(round_trip("snappy", Compression::Snappy)).await,
            "lz4" => run(round_trip("lz4", Compression::Lz4)).await,
            "zstd" => run(round_trip("zstd", Compression::Zstd)).await,
            "create" => run(create()).await,
            "headers" => run(headers()).await,
            "large" => run(large()).await,
            "offsets" => run(offsets()).await,
            "delrecords" => run(delrecords()).await,
            "deltopic" => run(deltopic()).await,
            "leader" => run(leader()).await,
            _ if check.starts_with("gaps:") => run(gap(check[5..].to_owned())).await,
            _ => {
                println!("@skip {check} the client has no API for it");
                continue;
            }
        };
        match res {
            Ok(detail) => println!("@pass {check} {detail}"),
            Err(e) => println!("@fail {check} {}", e.to_string().replace('\n', " | ")),
        }
    }
}

async fn run(f: impl Future<Output = Res>) -> Res {
    f.await
}
