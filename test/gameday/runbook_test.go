//go:build gameday

package gameday

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// runbook has the shell blocks of docs/runbook.md by their names ("```sh NAME").
type runbook struct {
	t      *testing.T
	blocks map[string]string
	ran    map[string]bool
	env    []string
}

var block = regexp.MustCompile("(?s)```sh ?([a-z]*)\n(.*?)```")

func openRunbook(t *testing.T, env ...string) *runbook {
	t.Helper()
	// The commands say mirrorgate, wherever it is.
	bin := t.TempDir()
	if err := os.Symlink(harness.Binary(t), filepath.Join(bin, "mirrorgate")); err != nil {
		t.Fatal(err)
	}
	b := &runbook{t: t, blocks: map[string]string{}, ran: map[string]bool{}}
	b.env = append(append(os.Environ(), env...), "PATH="+bin+":"+os.Getenv("PATH"))
	for _, found := range block.FindAllStringSubmatch(read(t, "../../docs/runbook.md"), -1) {
		if found[1] == "" || b.blocks[found[1]] != "" {
			t.Errorf("a block of the runbook has no name of its own: %q", found[2])
		}
		b.blocks[found[1]] = found[2]
	}
	return b
}

// run runs a block as somebody would who pastes it into a shell.
func (b *runbook) run(name string) (output string, took time.Duration) {
	b.t.Helper()
	b.ran[name] = true
	text := b.blocks[name]
	if text == "" {
		b.t.Fatalf("docs/runbook.md has no block %q", name)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	command.Env = b.env
	began := time.Now()
	out, err := command.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v\n%s\n%s", name, err, text, out)
	}
	return strings.TrimSpace(string(out)), time.Since(began)
}

// allRan fails the test for every block that nothing has run.
func (b *runbook) allRan() {
	b.t.Helper()
	for name := range b.blocks {
		if !b.ran[name] {
			b.t.Errorf("the block %q of docs/runbook.md is not run by any test", name)
		}
	}
}
