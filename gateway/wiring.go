package gateway

import (
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/handlers"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// destination says how to reach the destination.
func (c *Config) destination() (broker.Config, error) {
	properties := map[string]string{}
	if c.DestinationConfig != "" {
		var err error
		if properties, err = broker.ReadPropertiesFile(c.DestinationConfig); err != nil {
			return broker.Config{}, fmt.Errorf("destination-config: %w", err)
		}
	}
	properties["bootstrap.servers"] = c.Destination
	if properties["client.id"] == "" {
		properties["client.id"] = "mirrorgate"
	}
	config, err := broker.ParseProperties(properties, nil)
	if err != nil {
		return broker.Config{}, fmt.Errorf("destination, destination-config: %w", err)
	}
	return config, nil
}

// secretKey reads the key for passwords in the state log; nil if there is none.
func (c *Config) secretKey() ([]byte, error) {
	if c.SecretKeyFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.SecretKeyFile)
	if err != nil {
		return nil, fmt.Errorf("secret-key-file: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("secret-key-file: %s does not hold 64 hex digits (openssl rand -hex 32 makes some)", c.SecretKeyFile)
	}
	return key, nil
}

// proxy completes the limits of the client path by what other settings say.
func (c *Config) proxy() proxy.Config {
	p := c.Proxy
	p.Listen, p.AdvertiseHost, p.Bootstrap = c.Listen, bareHost(c.Advertise), []string{c.Destination}
	p.APINames = c.apiNames()
	if c.BrokerPortBase != 0 {
		p.BrokerPortBase = c.BrokerPortBase + 1
	}
	if p.AdvertiseBrokerPortBase != 0 {
		p.AdvertiseBrokerPortBase++
	}
	return p
}

// bareHost takes the brackets off an IPv6 address: clients put them on themselves.
func bareHost(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		return strings.TrimSuffix(inner, "]")
	}
	return host
}

// apiNames names the mirror RPCs by their keys.
func (c *Config) apiNames() map[int16]string {
	names := make(map[int16]string)
	keys := handlers.DefaultKeys()
	maps.Copy(keys, c.keys())
	for name, key := range keys {
		names[key] = name
	}
	return names
}

func (c *Config) keys() handlers.KeyTable {
	if len(c.APIKeys) == 0 {
		return nil
	}
	keys := make(handlers.KeyTable, len(c.APIKeys))
	for name, key := range c.APIKeys {
		keys[name] = int16(key)
	}
	return keys
}

// Logger makes the logger that the configuration asks for; it writes to stderr.
func (c *Config) Logger() (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(c.LogLevel)
	if err != nil {
		return nil, fmt.Errorf("log-level: %w", err)
	}
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(level)
	config.Encoding = c.LogFormat
	config.DisableStacktrace = true
	config.DisableCaller = true
	config.Sampling = nil
	config.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	if c.LogFormat == "console" {
		config.EncoderConfig.EncodeLevel = zapcore.CapitalLevelEncoder
	}
	return config.Build()
}
