package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A MissingError says what must be installed before Kafka can be started.
type MissingError struct {
	What string // "Java" or "Maven"
	How  string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is missing: %s. (MIRRORGATE_SKIP_KAFKA=1 skips the tests that need real Kafka.)", e.What, e.How)
}

// Artifact is one thing to fetch from Maven Central together with what it needs at run time.
type Artifact struct{ Group, Name, Version string }

// CacheDir is where fetched jars are kept: $MIRRORGATE_CACHE, by default ~/.cache/mirrorgate.
func CacheDir() (string, error) {
	if dir := os.Getenv("MIRRORGATE_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("kafkatest: no cache folder, set MIRRORGATE_CACHE: %w", err)
	}
	return filepath.Join(cache, "mirrorgate"), nil
}

// Java is the java that runs brokers and tools.
func Java() (string, error) {
	name := os.Getenv("MIRRORGATE_JAVA")
	if name == "" {
		name = "java"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &MissingError{"Java", "install Java 17 or later (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; " +
			"Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17), or name one with MIRRORGATE_JAVA"}
	}
	return path, nil
}

// Jars returns the folder with the jars of a Kafka release (brokers and command-line tools), fetched on first use.
func Jars(ctx context.Context, version string) (string, error) {
	return Fetch(ctx, "kafka-"+version, artifacts(version)...)
}

// Fetch returns the folder name of the cache, filled with the artifacts and their run-time dependencies on first use.
// Any number of processes may ask for the same folder at once.
func Fetch(ctx context.Context, name string, artifacts ...Artifact) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	target := filepath.Join(cache, name)
	if exists(target) {
		return target, nil
	}
	unlock, err := LockCache(target)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(target) {
		return target, nil
	}
	work, err := os.MkdirTemp(cache, name+"-*.tmp")
	if err != nil {
		return "", fmt.Errorf("kafkatest: cache: %w", err)
	}
	defer os.RemoveAll(work)
	if err := Download(ctx, func() error { return copyDependencies(ctx, work, artifacts) }); err != nil {
		return "", fmt.Errorf("kafkatest: fetching %s: %w", name, err)
	}
	if err := os.Rename(filepath.Join(work, "jars"), target); err != nil {
		return "", fmt.Errorf("kafkatest: cache: %w", err)
	}
	return target, nil
}

func copyDependencies(ctx context.Context, work string, artifacts []Artifact) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return &MissingError{"Maven", "install it (Debian, Ubuntu: apt-get install maven; Fedora: dnf install maven; " +
			"macOS: brew install maven); it fetches Kafka's jars from Maven Central"}
	}
	var pom strings.Builder
	pom.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
		`<groupId>fetch</groupId><artifactId>fetch</artifactId><version>1</version><dependencies>`)
	for _, a := range append(artifacts, Artifact{"org.slf4j", "slf4j-simple", "1.7.36"}) {
		fmt.Fprintf(&pom, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>",
			a.Group, a.Name, a.Version)
	}
	pom.WriteString("</dependencies></project>\n")
	file := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(file, []byte(pom.String()), 0o666); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, maven, "-B", "-q", "-f", file, "dependency:copy-dependencies",
		"-DoutputDirectory="+filepath.Join(work, "jars"), "-DincludeScope=runtime",
		// slf4j-simple is the one logging backend: it writes to standard error, configured by properties.
		"-DexcludeArtifactIds=slf4j-log4j12,slf4j-reload4j,log4j-slf4j-impl")
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("mvn: %w:\n%s", err, tail(output, 20))
	}
	return nil
}

// Download does something that needs a package registry, and tries twice more where it fails: registries and networks have bad
// moments. What is not installed is said at once.
func Download(ctx context.Context, do func() error) error {
	for wait := 5 * time.Second; ; wait *= 3 {
		err := do()
		var missing *MissingError
		if err == nil || errors.As(err, &missing) || wait > 15*time.Second {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// LockCache waits until no other process holds the lock of a path in the cache, whose folder is made if necessary.
func LockCache(path string) (unlock func(), err error) {
	path += ".lock"
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, fmt.Errorf("kafkatest: cache: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("kafkatest: cache: %w", err)
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("kafkatest: locking %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}

// tail is the last n lines of output.
func tail(output []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(output), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
