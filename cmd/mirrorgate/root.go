package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// usageError is a command line that makes no sense; the message says what to change.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// run runs the command line args and returns the exit code. It returns early, with a failure, when ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "mirrorgate: %s\n", err)
	var usage *usageError
	if errors.As(err, &usage) || isUnknownCommand(err) {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", command.CommandPath())
		return exitUsage
	}
	var coded interface{ ExitCode() int } // verify has codes of its own
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return exitFailure
}

// isUnknownCommand recognises the one usage error that cobra has no hook for.
func isUnknownCommand(err error) bool { return strings.HasPrefix(err.Error(), "unknown command ") }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "mirrorgate",
		Short: "A Kafka gateway that mirrors topics with their offsets",
		Long: `Mirrorgate stands in front of an unmodified Kafka cluster, the destination, passes Kafka's requests through, and
copies topics of another cluster, the source, into it with the same offsets, keys, values, headers and timestamps.

Exit codes: 0 done, 1 failed, 2 the command line makes no sense.`,
		Example: `  mirrorgate demo
  mirrorgate serve --listen 0.0.0.0:9092 --advertise gateway.example --destination kafka:9092 --data-dir /var/lib/mirrorgate
  mirrorgate mirrors create --bootstrap-server gateway:9092 --mirror east --mirror-config bootstrap.servers=old-kafka:9092
  mirrorgate mirrors add-topics --bootstrap-server gateway:9092 --mirror east --topics orders,payments --wait
  mirrorgate verify --source old-kafka:9092 --destination kafka:9092 --topics orders`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err.Error()} })
	root.AddCommand(
		newServeCommand(),
		newMirrorsCommand(),
		newVerifyCommand(),
		newDemoCommand(),
		newVersionCommand(),
	)
	return root
}

// noArgs refuses arguments that are no flags, as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, but got %q; put a flag before it", cmd.CommandPath(), args[0])
	}
	return nil
}

// group makes a command that only holds others: alone it shows its help.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("%s has no command %q", cmd.CommandPath(), args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}
