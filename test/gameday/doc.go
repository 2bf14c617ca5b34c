// Package gameday has the game day (make gameday): a source is killed, clients go on at the other cluster, and everything
// comes home again, while applications run that keep ledgers of every acknowledged record. The commands are those of
// docs/runbook.md, cut out of it. The test of the reasons of FAILED in the runbook needs no Kafka and runs in CI; the game
// day itself has the build tag gameday.
package gameday
