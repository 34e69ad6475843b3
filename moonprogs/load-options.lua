--- The command line of l2-load-latency.lua.
local guests = require "load-guests"
local sizes  = require "load-sizes"

local options = {}

-- A converter for numbers of [low, high].
local function number(name, low, high, whole)
	return function(text)
		local value = tonumber(text)
		if not value or value < low or value > high or value ~= value or (whole and value % 1 ~= 0) then
			return nil, ("%s must be a %snumber from %s to %s, not '%s'"):format(name, whole and "whole " or "", low, high, text)
		end
		return value
	end
end

-- What each option means by itself; MoonGen turns words that look like numbers into such.
local function parse(parser)
	parser:description("Offers a constant load, takes latency samples from it, and reports frame totals.")
	parser:argument("dev", "Port to use."):convert(number("dev", 0, 255, true))
	parser:argument("mac", "Destination MAC address of the load, or several: MAC,MAC,..."):convert(tostring)
	parser:option("--count", "Number of guests: MAC is the address of the first, the others follow it.")
		:convert(number("count", 1, 1000, true))
	parser:option("-r --rate", "Offered load in kpps, total."):default(10000):convert(number("rate", 1e-3, 1e6))
	parser:option("-s --size", "Frame size in bytes, without CRC; or imix; or SIZE:WEIGHT+SIZE:WEIGHT; several of these, which "
		.. "the guests take in turn, with ~ between them; or @FILE with such a text."):default("60"):convert(tostring)
	parser:option("--weights", "Shares of the guests in the load, like 3:1 (default: even)."):convert(tostring)
	parser:option("--seed", "What the order of the frame sizes depends on."):default(1)
		:convert(number("seed", 0, 2 ^ 32 - 1, true))
	parser:option("-f --file", "Histogram file."):default("histogram.csv")
	parser:option("--guests-file", "Write the histograms of several guests to this file: guest, nanoseconds, count.")
	parser:option("-T --time", "Seconds of load."):default(60):convert(number("time", 0.01, 1e6))
	parser:option("-t --threads", "Load tasks."):default(1):convert(number("threads", 1, 8, true))
	parser:option("-c --csv", "Write the statistics also to this file, as CSV.")
	parser:option("--max-wait", "Seconds after which a latency sample counts as lost."):default(2)
		:convert(number("max-wait", 1e-3, 60))
	parser:option("--drain", "Seconds without a frame after which nothing more is expected back.")
		:default(0.5):convert(number("drain", 0, 60))
	return parser:parse()
end

-- What only all options together tell.
local function resolve(args)
	args.addresses = guests.parseAddresses(args.mac, args.count)
	args.weights = guests.parseWeights(args.weights, #args.addresses)
	args.sizes = sizes.parse(args.size)
	if #args.sizes > #args.addresses then
		error(("size must not have more entries than there are addresses: %d for %d"):format(#args.sizes, #args.addresses), 0)
	end
end

--- Declare and parse; returns the arguments by name, with lists in place of the texts: `addresses`, `weights`, and `sizes`,
-- distributions which the guests take in turn.
function options.parse(parser)
	local args = parse(parser)
	local fine, problem = pcall(resolve, args)
	if not fine then
		parser:error(problem)
	end
	return args
end

return options
