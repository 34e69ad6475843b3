--- The global helpers that MoonGen gives every program.
require "colors"

function printf(format, ...)
	print(format:format(...))
end

function errorf(format, ...)
	error(format:format(...), 2)
end

function tonumberall(...)
	local values = { ... }
	for i = 1, select("#", ...) do
		values[i] = tonumber(values[i])
	end
	return unpack(values, 1, select("#", ...))
end

--- A MAC address as a number with the first byte lowest, or nil when the text is none.
function parseMacAddress(text, number)
	if not number then
		error("softmoon: parseMacAddress without number=true is not supported", 2)
	end
	local bytes = { tostring(text):match("^(%x%x?)[-:](%x%x?)[-:](%x%x?)[-:](%x%x?)[-:](%x%x?)[-:](%x%x?)$") }
	if #bytes ~= 6 then
		return nil
	end
	local address = 0
	for i = 6, 1, -1 do
		address = address * 256 + tonumber(bytes[i], 16)
	end
	return address
end

function bswap16(n)
	return bit.bor(bit.rshift(n, 8), bit.lshift(bit.band(n, 0xff), 8))
end
hton16, ntoh16 = bswap16, bswap16

function time()
	return require("softmoon.kernel").wallSeconds()
end
