package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// largest is how large a file of a corpus may be: the repository is read by people, too.
const largest = 4 << 10

// input is a file of a corpus and what code it reaches.
type input struct {
	name   string
	size   int64
	blocks map[string]bool
}

// keepBest copies the inputs of Go's cache that reach the most code to the package's testdata, until there are n.
// What is there already stays: it was a crash once.
func keepBest(ctx context.Context, out io.Writer, t target, n int) error {
	cache, err := output(ctx, ".", "go", "env", "GOCACHE")
	if err != nil {
		return err
	}
	from, to := filepath.Join(strings.TrimSpace(cache), "fuzz", t.pkg, t.name), filepath.Join(t.dir, "testdata", "fuzz", t.name)
	files, err := os.ReadDir(from)
	if os.IsNotExist(err) { // the seeds in the code reach everything that was reached
		return nil
	}
	if err != nil {
		return err
	}
	there, err := os.ReadDir(to)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	m, err := newMeter(ctx, t)
	if err != nil {
		return err
	}
	defer os.RemoveAll(m.dir)
	reached, err := m.reached(ctx, "seed#") // what is in the code
	if err != nil {
		return err
	}
	for _, file := range there {
		more, err := m.reached(ctx, file.Name())
		if err != nil {
			return err
		}
		maps.Copy(reached, more)
	}
	candidates, err := m.candidates(ctx, from, to, files)
	if err != nil {
		return err
	}
	kept := choose(candidates, reached, n-len(there))
	for _, file := range kept {
		if err := place(from, to, file.name); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "kept %d of %d inputs beside %d that were there\n", len(kept), len(candidates), len(there))
	return err
}

func place(from, to, name string) error {
	content, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, name), content, 0o666)
}

// choose takes the input that reaches the most code that is not reached yet, again and again; then, as counts and values make a difference
// too that blocks do not show, the smallest.
func choose(inputs []input, reached map[string]bool, n int) []input {
	left := slices.Clone(inputs)
	slices.SortFunc(left, func(a, b input) int { return cmp.Or(cmp.Compare(a.size, b.size), strings.Compare(a.name, b.name)) })
	var chosen []input
	for len(chosen) < n && len(left) > 0 {
		best, most := 0, 0
		for i, candidate := range left {
			news := 0
			for block := range candidate.blocks {
				if !reached[block] {
					news++
				}
			}
			if news > most {
				best, most = i, news
			}
		}
		maps.Copy(reached, left[best].blocks)
		chosen = append(chosen, left[best])
		left = slices.Delete(left, best, best+1)
	}
	return chosen
}

// meter measures which blocks of a package an input reaches.
type meter struct {
	target target
	dir    string
	binary string
}

func newMeter(ctx context.Context, t target) (*meter, error) {
	dir, err := os.MkdirTemp("", "mirrorgate-fuzz-")
	if err != nil {
		return nil, err
	}
	m := &meter{target: t, dir: dir, binary: filepath.Join(dir, "test")}
	_, err = output(ctx, t.dir, "go", "test", "-c", "-cover", "-coverpkg", "./...", "-o", m.binary)
	return m, err
}

// candidates measures the inputs of the cache that are small enough, each in the package's testdata for the moment.
func (m *meter) candidates(ctx context.Context, from, to string, files []os.DirEntry) ([]input, error) {
	var candidates []input
	for _, file := range files {
		info, err := file.Info()
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(to, file.Name())); err == nil || info.Size() > largest {
			continue
		}
		if err := place(from, to, file.Name()); err != nil {
			return nil, err
		}
		blocks, err := m.reached(ctx, file.Name())
		if removed := os.Remove(filepath.Join(to, file.Name())); removed != nil {
			return nil, removed
		}
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, input{name: file.Name(), size: info.Size(), blocks: blocks})
	}
	return candidates, nil
}

// reached runs the inputs whose names begin with a prefix.
func (m *meter) reached(ctx context.Context, prefix string) (map[string]bool, error) {
	profile := filepath.Join(m.dir, "profile")
	command := exec.CommandContext(ctx, m.binary, "-test.run", "^"+m.target.name+"$/^"+prefix, "-test.coverprofile", profile)
	command.Dir = m.target.dir
	if text, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", prefix, err, text)
	}
	content, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	return blocksOf(string(content)), nil
}

// blocksOf reads a cover profile: lines such as "file.go:1.2,3.4 5 1", with the count at the end.
func blocksOf(profile string) map[string]bool {
	blocks := map[string]bool{}
	for line := range strings.Lines(profile) {
		block, count, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && block != "mode:" && !strings.HasSuffix(count, " 0") {
			blocks[block] = true
		}
	}
	return blocks
}
