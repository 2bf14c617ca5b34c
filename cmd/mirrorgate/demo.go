package main

import (
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/term"

	"github.com/mirrorgate/mirrorgate/demo"
	"github.com/mirrorgate/mirrorgate/gateway"
)

func newDemoCommand() *cobra.Command {
	var o demo.Options
	var logs bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a live mirror; no Kafka needed",
		Long: `Show a live mirror; no Kafka needed.

Starts two in-process Kafka clusters and a gateway in front of the second, produces to the first, mirrors it through
the gateway, and moves a consumer group from the source to the gateway, where it goes on at exactly the next record. It
prints the addresses, so that you can try your own tools on them. Ctrl-C, or the end of --duration, compares both logs
record by record. The exit code is 0 only if everything matched.`,
		Example: `  mirrorgate demo
  mirrorgate demo --duration 20s
  mirrorgate demo --listen 127.0.0.1:9092 --rate 2000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Rate < 1 || o.Rate > 100_000 {
				return usagef("--rate must be within 1 and 100000")
			}
			if o.Duration < 0 {
				return usagef("--duration must not be negative")
			}
			o.Out = cmd.OutOrStdout()
			if f, ok := o.Out.(*os.File); ok {
				o.Live = term.IsTerminal(int(f.Fd()))
			}
			o.Log = zap.NewNop()
			if logs {
				cfg := gateway.DefaultConfig()
				log, err := cfg.Logger()
				if err != nil {
					return err
				}
				o.Log = log
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			return demo.Run(ctx, o)
		},
	}
	fs := cmd.Flags()
	fs.DurationVar(&o.Duration, "duration", 0, "how long to produce; 0 = until Ctrl-C")
	fs.IntVar(&o.Rate, "rate", 500, "records a second")
	fs.StringVar(&o.Listen, "listen", "127.0.0.1:0", "host:port of the gateway; port 0 = any free one")
	fs.BoolVar(&logs, "logs", false, "show the gateway's log on standard error")
	return cmd
}
