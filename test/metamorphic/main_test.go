package metamorphic

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const (
	// durationVariable says for how long stories are told; a chapter that has begun is always finished.
	durationVariable = "MIRRORGATE_METAMORPHIC"
	defaultDuration  = 2 * time.Minute
	// stepsOfChapter are the random steps between two comparisons.
	stepsOfChapter = 30
	// chapters is after how many of them a story ends and another begins, with another seed and new clusters.
	chapters = 10
)

// TestMetamorphic tells stories until the time is over, and at least one chapter.
func TestMetamorphic(t *testing.T) {
	duration := defaultDuration
	if text := os.Getenv(durationVariable); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", durationVariable, err)
		}
	}
	deadline := time.Now().Add(duration)
	for i := 0; i == 0 || time.Now().Before(deadline) && !t.Failed(); i++ {
		t.Run(fmt.Sprintf("story-%d", i), func(t *testing.T) {
			s := newStory(t, harness.Random(t))
			for chapter := 0; chapter == 0 || chapter < chapters && time.Now().Before(deadline); chapter++ {
				s.chapter()
			}
			s.sum()
		})
	}
}
