package clients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

const (
	compilerVersion = "3.40.0" // of Eclipse's Java compiler, which needs no JDK
	jacksonVersion  = "2.17.2"
)

// pythonPackages are all that the Python programs need: the clients and the codecs.
var pythonPackages = []string{
	"confluent-kafka==2.16.1", "kafka-python==3.0.12", "aiokafka==0.14.0",
	"cramjam==2.14.0", "python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0", "crc32c==2.9.post0",
}

// command is how a program is started: its arguments, and what its environment has besides this process's.
type command struct {
	args, env []string
}

// install makes a program ready to run, from the registries where it is not in the cache yet.
type install func(ctx context.Context) (command, error)

// installAll begins to make the programs ready, one after the other, and returns how to wait for each: the first can run while the others are
// being built.
func installAll(t *testing.T, clients []client) map[string]func() (command, error) {
	ctx := t.Context()
	commands := map[string]func() (command, error){}
	for _, c := range clients {
		commands[c.name] = sync.OnceValues(func() (command, error) { return c.install(ctx) })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, c := range clients {
			_, _ = commands[c.name]() // whoever waits gets the error
		}
	}()
	t.Cleanup(func() { <-done })
	return commands
}

// golang is a program of programs/go, a module of its own.
func golang(program string, env ...string) install {
	return func(ctx context.Context) (command, error) {
		bin, err := cacheDir("bin")
		if err != nil {
			return command{}, err
		}
		err = kafkatest.Download(ctx, func() error {
			return run(ctx, "programs/go", "go", "build", "-buildvcs=false", "-o", bin+"/", "./"+program)
		})
		return command{args: []string{filepath.Join(bin, program)}, env: env}, err
	}
}

// java is a class of programs/java, compiled against a release of Kafka's client.
func java(version, class string, sources ...string) install {
	return func(ctx context.Context) (command, error) {
		jars, err := kafkatest.Fetch(ctx, "java-client-"+version, kafkatest.Artifact{Group: "org.apache.kafka", Name: "kafka-clients", Version: version},
			kafkatest.Artifact{Group: "com.fasterxml.jackson.core", Name: "jackson-databind", Version: jacksonVersion})
		if err != nil {
			return command{}, err
		}
		args, err := compileJava(ctx, jars, class, sources...)
		return command{args: args}, err
	}
}

// compileJava compiles sources of programs/java against a folder of jars, unless it has been done, and returns the arguments that run
// a class of them.
func compileJava(ctx context.Context, jars, class string, sources ...string) ([]string, error) {
	jvm, err := kafkatest.Java()
	if err != nil {
		return nil, err
	}
	compiler, err := kafkatest.Fetch(ctx, "ecj-"+compilerVersion, kafkatest.Artifact{Group: "org.eclipse.jdt", Name: "ecj", Version: compilerVersion})
	if err != nil {
		return nil, err
	}
	var files []string
	for _, source := range append([]string{class}, sources...) {
		files = append(files, filepath.Join("programs/java", source+".java"))
	}
	classes, err := cached("java-"+filepath.Base(jars)+"-"+class, files, func(dir string) error {
		args := []string{"-cp", filepath.Join(compiler, "*"), "org.eclipse.jdt.internal.compiler.batch.Main", "-11", "-nowarn", "-d", dir, "-cp", allJars(jars)}
		return run(ctx, ".", jvm, append(args, files...)...)
	})
	path := classes + string(os.PathListSeparator) + filepath.Join(jars, "*")
	return []string{jvm, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path, class}, err
}

// allJars is a class path for the compiler, which knows no wildcards.
func allJars(dir string) string {
	jars, _ := filepath.Glob(filepath.Join(dir, "*.jar")) // the pattern is good
	return strings.Join(jars, string(os.PathListSeparator))
}

// python is a program of programs/py.
func python(program string) install {
	return func(ctx context.Context) (command, error) {
		interpreter, err := harness.Python(ctx, pythonPackages...)
		if err != nil {
			return command{}, err
		}
		path, err := filepath.Abs(filepath.Join("programs/py", program))
		return command{args: []string{interpreter, path}}, err
	}
}

// kcat is the command of that name, driven by a Python program.
func kcat(ctx context.Context) (command, error) {
	if _, err := exec.LookPath("kcat"); err != nil {
		return command{}, errors.New("kcat is missing: install it (Debian, Ubuntu: apt-get install kcat; macOS: brew install kcat)")
	}
	return python("kcat.py")(ctx)
}

// node is a program of programs/node.
func node(program string) install {
	return func(ctx context.Context) (command, error) {
		for _, name := range []string{"node", "npm"} {
			if _, err := exec.LookPath(name); err != nil {
				return command{}, fmt.Errorf("%s is missing: install Node.js 18 or later with npm (Debian, Ubuntu: apt-get install nodejs npm)", name)
			}
		}
		dir, err := cached("node", []string{"programs/node/package.json"}, func(dir string) error {
			manifest, err := os.ReadFile("programs/node/package.json")
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o666)
			}
			if err != nil {
				return err
			}
			return kafkatest.Download(ctx, func() error {
				return run(ctx, dir, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts")
			})
		})
		path, pathErr := filepath.Abs(filepath.Join("programs/node", program))
		return command{args: []string{"node", path}, env: []string{"NODE_DIR=" + dir}}, errors.Join(err, pathErr)
	}
}

// rust is the program of programs/rust.
func rust(ctx context.Context) (command, error) {
	if _, err := exec.LookPath("cargo"); err != nil {
		return command{}, errors.New("cargo is missing: install Rust (Debian, Ubuntu: apt-get install cargo)")
	}
	target, err := cacheDir("rust")
	if err != nil {
		return command{}, err
	}
	err = run(ctx, "programs/rust", "cargo", "build", "--quiet", "--release", "--locked", "--target-dir", target)
	return command{args: []string{filepath.Join(target, "release", "rskafka-client")}}, err
}

// cacheDir is a folder of the cache for the programs.
func cacheDir(name string) (string, error) {
	cache, err := kafkatest.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "clients", name)
	return dir, os.MkdirAll(dir, 0o777)
}

// cached returns a folder of the cache that is filled once for each content of the files.
func cached(name string, files []string, fill func(dir string) error) (string, error) {
	hash := sha256.New()
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(file), len(content), content)
	}
	dir, err := cacheDir(name + "-" + hex.EncodeToString(hash.Sum(nil))[:12])
	if err != nil {
		return "", err
	}
	unlock, err := kafkatest.LockCache(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	ready := filepath.Join(dir, "ready")
	if _, err := os.Stat(ready); err == nil {
		return dir, nil
	}
	if err := fill(dir); err != nil {
		return "", err
	}
	return dir, os.WriteFile(ready, nil, 0o666)
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output)
	}
	return nil
}
