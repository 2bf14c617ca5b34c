package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// Python is a Python interpreter that has the packages, in a virtual environment of the cache that is made on first use.
func Python(ctx context.Context, packages ...string) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", errors.New("Python is missing: install Python 3 with its venv module (Debian, Ubuntu: apt-get install python3 python3-venv)")
	}
	cache, err := kafkatest.CacheDir()
	if err != nil {
		return "", err
	}
	target := filepath.Join(cache, "python-"+strings.ReplaceAll(strings.Join(packages, "-"), "==", "-"))
	ready := filepath.Join(target, "ready")
	interpreter := filepath.Join(target, "bin", "python")
	unlock, err := kafkatest.LockCache(target)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(ready); err == nil {
		return interpreter, nil
	}
	commands := [][]string{
		{python, "-m", "venv", "--clear", target},
		append([]string{interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...),
	}
	err = kafkatest.Download(ctx, func() error {
		for _, command := range commands {
			if output, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w (Debian, Ubuntu: apt-get install python3-venv)\n%s", strings.Join(command, " "), err, output)
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return interpreter, os.WriteFile(ready, nil, 0o666)
}
