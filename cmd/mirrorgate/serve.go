package main

import (
	"github.com/spf13/cobra"

	"github.com/mirrorgate/mirrorgate/gateway"
)

func newServeCommand() *cobra.Command {
	cfg := gateway.DefaultConfig()
	var file string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway in front of a destination cluster",
		Long: `Run the gateway in front of a destination cluster.

Clients use --advertise and the port of --listen as their bootstrap server; broker n of the destination is served at the
port of --listen + 1 + n (--broker-port-base moves that range). Every setting can also stand in a YAML file, under the
name of its flag; flags win. A destination that does not answer yet is waited for. SIGTERM and SIGINT stop the gateway
gracefully.`,
		Example: `  mirrorgate serve --listen 0.0.0.0:9092 --advertise gateway.example --destination kafka1:9092,kafka2:9092 --data-dir /var/lib/mirrorgate
  mirrorgate serve --config /etc/mirrorgate.yaml --log-format json
  mirrorgate serve --destination kafka:9093 --destination-config client.properties --metrics :9464

  # /etc/mirrorgate.yaml
  listen: 0.0.0.0:9092
  advertise: gateway.example
  destination: [kafka1:9092, kafka2:9092]
  data-dir: /var/lib/mirrorgate`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if err := gateway.LoadFile(cmd.Flags(), file); err != nil {
					return usagef("%s", err)
				}
			}
			if err := cfg.Validate(); err != nil {
				return usagef("%s", err)
			}
			log, err := cfg.Logger()
			if err != nil {
				return err
			}
			g, err := gateway.New(cfg, log)
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // terminals and pipes cannot be synced
			return g.Run(cmd.Context())
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&file, "config", "", "YAML file of settings")
	cfg.Flags(cmd.Flags())
	return cmd
}
