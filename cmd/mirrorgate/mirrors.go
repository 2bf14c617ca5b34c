package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// gatewayFlags are the flags that all commands of "mirrorgate mirrors" share.
type gatewayFlags struct {
	bootstrap      string
	commandConfig  string
	json           bool
	requestTimeout time.Duration
	apiKeys        map[string]int
}

func newMirrorsCommand() *cobra.Command {
	f := new(gatewayFlags)
	cmd := group(&cobra.Command{
		Use:   "mirrors",
		Short: "Create, change and watch mirrors",
		Long: `The commands talk to a gateway with Kafka's protocol, by the mirror RPCs of KIP-1279, and need rights on the
destination cluster: DESCRIBE to look, ALTER to change, and ALTER on destination topics that exist.

Tables and results go to standard output, progress and errors to standard error. With --json the output is one JSON
document whose names stay; each command's help shows it.`,
		Example: `  mirrorgate mirrors create --bootstrap-server gateway:9092 --mirror east --mirror-config bootstrap.servers=old-kafka:9092
  mirrorgate mirrors add-topics --bootstrap-server gateway:9092 --mirror east --topics orders,payments --wait
  mirrorgate mirrors describe --bootstrap-server gateway:9092 --mirror east
  mirrorgate mirrors cutover --bootstrap-server gateway:9092 --mirror east --all-topics`,
	})
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.bootstrap, "bootstrap-server", "", "host:port of the gateway, or several with commas (required)")
	flags.StringVar(&f.commandConfig, "command-config", "", "client.properties with how to reach the gateway: security.protocol, sasl.*, ssl.*")
	flags.BoolVar(&f.json, "json", false, "print JSON instead of text")
	flags.DurationVar(&f.requestTimeout, "request-timeout", time.Minute, "how long the gateway may take for one answer")
	flags.StringToIntVar(&f.apiKeys, "api-keys", nil, "NAME=KEY, for gateways that were told to use other API keys, for example CreateMirror=5107")
	cmd.AddCommand(
		newMirrorsCreateCommand(f),
		newMirrorsAddTopicsCommand(f),
		newMirrorsRemoveTopicsCommand(f),
		newMirrorsCutoverCommand(f),
		newMirrorsFailoverCommand(f),
		newMirrorsPauseCommand(f),
		newMirrorsResumeCommand(f),
		newMirrorsAlterCommand(f),
		newMirrorsDeleteCommand(f),
		newMirrorsListCommand(f),
		newMirrorsDescribeCommand(f),
	)
	return cmd
}

// keyTable returns the API key of every mirror RPC by its default one, as --api-keys has it.
func (f *gatewayFlags) keyTable() (map[int16]int16, error) {
	table := make(map[int16]int16)
	byName := make(map[string]int16)
	for _, key := range mirrormsg.Keys() {
		table[key], byName[mirrormsg.Name(key)] = key, key
	}
	for name, key := range f.apiKeys {
		standard, ok := byName[name]
		if !ok {
			return nil, usagef("--api-keys: %q is not a mirror RPC; they are named like CreateMirror", name)
		}
		if key < 0 || key > 1<<15-1 {
			return nil, usagef("--api-keys: %s=%d is not an API key; they are 0 to 32767", name, key)
		}
		table[standard] = int16(key)
	}
	return table, nil
}
