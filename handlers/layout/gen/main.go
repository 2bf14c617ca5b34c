// Command gen writes the tables of package layout from the message definitions inside a Kafka client jar
// (common/message/*.json):
//
//	go run ./gen -jar kafka-clients-4.4.0.jar
//
// With -check it writes nothing and fails if the committed files differ from what the jar says.
package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"io"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	jar := flag.String("jar", os.Getenv("KAFKA_CLIENTS_JAR"), "Kafka client jar to read")
	dir := flag.String("dir", ".", "directory of package layout")
	check := flag.Bool("check", false, "only compare with the committed files")
	flag.Parse()
	if *jar == "" {
		log.Fatal("gen: no jar: give -jar or set KAFKA_CLIENTS_JAR (mvn dependency:copy -Dartifact=org.apache.kafka:kafka-clients:4.4.0)")
	}
	if err := run(*jar, *dir, *check); err != nil {
		log.Fatal("gen: ", err)
	}
}

func run(jar, dir string, check bool) error {
	messages, err := readJar(jar)
	if err != nil {
		return fmt.Errorf("reading %s: %w", jar, err)
	}
	tables, err := format.Source(writeTables(filepath.Base(jar), messages))
	if err != nil {
		return fmt.Errorf("formatting the tables: %w", err)
	}
	for name, content := range map[string][]byte{
		"tables.go":          tables,
		"testdata/spots.txt": writeSpots(messages),
	} {
		file := filepath.Join(dir, name)
		if !check {
			if err := os.WriteFile(file, content, 0o644); err != nil {
				return err
			}
			continue
		}
		old, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !bytes.Equal(withoutJar(old), withoutJar(content)) {
			return fmt.Errorf("%s differs from what %s says: look at every new topic ID and host, then generate", name, jar)
		}
	}
	return nil
}

// withoutJar takes off the line that names the jar.
func withoutJar(file []byte) []byte {
	if bytes.HasPrefix(file, []byte("// Code generated")) {
		_, file, _ = bytes.Cut(file, []byte("\n"))
	}
	return file
}

// readJar returns the request and response definitions, by API key, requests first.
func readJar(jar string) ([]*message, error) {
	r, err := zip.OpenReader(jar)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var messages []*message
	for _, f := range r.File {
		if ok, _ := path.Match("common/message/*.json", f.Name); !ok {
			continue
		}
		m, err := readMessage(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if m.isAPI() {
			messages = append(messages, m)
		}
	}
	slices.SortFunc(messages, func(a, b *message) int {
		if a.Key != b.Key {
			return a.Key - b.Key
		}
		return strings.Compare(a.Type, b.Type)
	})
	return messages, nil
}

func readMessage(f *zip.File) (*message, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	m := &message{Key: -1}
	if err := json.Unmarshal(stripComments(text), m); err != nil {
		return nil, err
	}
	return m, m.resolve()
}

// stripComments removes // comments, which Kafka's JSON has and JSON has not.
func stripComments(text []byte) []byte {
	var out []byte
	inString := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case inString && c == '\\':
			out = append(out, c, text[i+1])
			i++
			continue
		case c == '"':
			inString = !inString
		case !inString && c == '/' && i+1 < len(text) && text[i+1] == '/':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			out = append(out, '\n')
			continue
		}
		out = append(out, c)
	}
	return out
}
