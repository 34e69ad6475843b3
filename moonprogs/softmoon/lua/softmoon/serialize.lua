--- Values as Lua text and back: how arguments and results travel between the tasks, each of which has its own Lua VM.
local serialize = {}

local function quote(value, out, path)
	local kind = type(value)
	local hook = kind == "table" and getmetatable(value) and rawget(getmetatable(value), "__serialize")
	if hook then
		out[#out + 1] = hook(value)
	elseif kind == "table" then
		if path[value] then
			error("softmoon: a task argument refers to itself", 0)
		end
		path[value] = true
		out[#out + 1] = "{"
		for key, item in pairs(value) do
			out[#out + 1] = "["
			quote(key, out, path)
			out[#out + 1] = "]="
			quote(item, out, path)
			out[#out + 1] = ","
		end
		out[#out + 1] = "}"
		path[value] = nil
	elseif kind == "number" then
		out[#out + 1] = value ~= value and "0/0" or value == math.huge and "1/0" or value == -math.huge and "-1/0"
			or ("%.17g"):format(value)
	elseif kind == "string" then
		out[#out + 1] = ("%q"):format(value)
	elseif kind == "boolean" or kind == "nil" then
		out[#out + 1] = tostring(value)
	else
		error(("softmoon: a %s cannot be handed to a task"):format(kind), 0)
	end
end

--- The values, nils included, as one piece of Lua text.
function serialize.dump(...)
	local parts = {}
	for i = 1, select("#", ...) do
		local out = {}
		quote((select(i, ...)), out, {})
		parts[i] = table.concat(out)
	end
	return table.concat(parts, ",")
end

--- The values of a text that `dump` wrote.
function serialize.load(text)
	return assert(loadstring("return " .. text, "=serialized"))()
end

return serialize
