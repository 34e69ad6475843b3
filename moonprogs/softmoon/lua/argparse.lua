--- The part of the argparse library that measuring programs use: arguments, options, flags, usage and errors.
local strict = require "softmoon.strict"

local element = strict({}, "argparse element:")
element.__index = element
local parser = strict({}, "parser:")
parser.__index = parser

for _, property in ipairs { "description", "default", "convert", "target", "argname" } do
	element[property] = function(self, value)
		self["_" .. property] = value
		return self
	end
end

--- How many values: a number, "?", "*" or "+".
function element:args(count)
	local limits = { ["?"] = { 0, 1 }, ["*"] = { 0, math.huge }, ["+"] = { 1, math.huge } }
	local limit = limits[count] or { tonumber(count), tonumber(count) }
	self._min, self._max = limit[1], limit[2]
	return self
end

local function new(names, description, default, convert, count)
	local self = setmetatable({ names = {}, _description = description or "", _default = default, _convert = convert,
		_min = count, _max = count, _target = false, _argname = false }, element)
	if default == nil then self._default = false end
	if convert == nil then self._convert = false end
	for name in names:gmatch("%S+") do
		table.insert(self.names, name)
	end
	return self
end

local function target(self)
	if self._target then
		return self._target
	end
	local name = self.names[1]
	for _, candidate in ipairs(self.names) do
		if candidate:match("^%-%-") then
			name = candidate
			break
		end
	end
	return (name:gsub("^%-+", ""):gsub("%-", "_"))
end

function parser:argument(name, description, default, convert)
	local argument = new(name, description, default, convert, 1)
	table.insert(self.arguments, argument)
	return argument
end

function parser:option(names, description, default, convert)
	local option = new(names, description, default, convert, 1)
	table.insert(self.options, option)
	return option
end

function parser:flag(names, description)
	return self:option(names, description):args(0)
end

function parser:description(text)
	self._description = text
	return self
end

--- What to parse: the words of the command line.
function parser:args(...)
	self.words = { ... }
	return self
end

function parser:isUsed()
	return #self.arguments > 0 or #self.options > 1
end

local function placeholder(self)
	return self._argname or "<" .. target(self) .. ">"
end

local function optionUsage(option)
	return option.names[1] .. (option._max > 0 and " " .. placeholder(option) or "")
end

local function usage(self)
	local parts = { "Usage: " .. self.name }
	for _, option in ipairs(self.options) do
		parts[#parts + 1] = "[" .. optionUsage(option) .. "]"
	end
	for _, argument in ipairs(self.arguments) do
		local text = placeholder(argument)
		parts[#parts + 1] = (argument._min == 0 or argument._default) and "[" .. text .. "]" or text
	end
	local lines = { "" }
	for _, part in ipairs(parts) do
		if #lines[#lines] + 1 + #part > 78 then
			lines[#lines + 1] = "      "
		end
		lines[#lines] = lines[#lines] .. (lines[#lines] == "" and "" or " ") .. part
	end
	return table.concat(lines, "\n")
end

local function help(self)
	local lines = { usage(self), "", self._description, "" }
	local function describe(left, item)
		local default = item._default and (" (default: %s)"):format(tostring(item._default)) or ""
		lines[#lines + 1] = ("   %-28s %s%s"):format(left, item._description, default)
	end
	for _, argument in ipairs(self.arguments) do
		describe(argument.names[1], argument)
	end
	for _, option in ipairs(self.options) do
		describe(table.concat(option.names, ", ") .. (option._max > 0 and " " .. placeholder(option) or ""), option)
	end
	return table.concat(lines, "\n")
end

--- Print the usage and what is wrong to stderr, and end the program with 1.
function parser:error(message)
	io.stderr:write(usage(self), "\n\nError: ", message, "\n")
	os.exit(1)
end

local function convert(self, item, word)
	if not item._convert then
		return tostring(word)
	end
	local value, problem = item._convert(word)
	if value == nil then
		self:error(problem or ("malformed argument '%s'"):format(tostring(word)))
	end
	return value
end

local function store(self, result, item, words)
	local values = {}
	for i, word in ipairs(words) do
		values[i] = convert(self, item, word)
	end
	if item._max == 0 then
		result[target(item)] = true
	elseif item._max > 1 then
		result[target(item)] = values
	else
		result[target(item)] = values[1]
	end
end

-- `--name=value` and `-nvalue` as two words.
local function splitWords(words, options)
	local split = {}
	for _, word in ipairs(words) do
		local text = tostring(word)
		local name, value = text:match("^(%-%-[^=]+)=(.*)$")
		if not name and options[text:sub(1, 2)] and #text > 2 and options[text:sub(1, 2)]._max > 0 then
			name, value = text:sub(1, 2), text:sub(3)
		end
		if name then
			split[#split + 1] = name
			split[#split + 1] = value
		else
			split[#split + 1] = text
		end
	end
	return split
end

local function parseOption(self, result, option, words, index)
	local values = {}
	while #values < option._max and words[index + 1] do
		index = index + 1
		values[#values + 1] = words[index]
	end
	if #values < option._min then
		self:error(("option '%s' requires an argument"):format(option.names[1]))
	end
	store(self, result, option, values)
	return index
end

local function assignPositionals(self, result, words)
	local index = 1
	for _, argument in ipairs(self.arguments) do
		local values = {}
		while #values < argument._max and words[index] do
			values[#values + 1] = words[index]
			index = index + 1
		end
		if #values > 0 then
			store(self, result, argument, values)
		elseif argument._min > 0 and not argument._default then
			self:error(("missing argument '%s'"):format(argument.names[1]))
		end
	end
	if words[index] then
		self:error("too many arguments")
	end
end

--- The values by target name.
function parser:parse()
	local byName, result, positionals = {}, {}, {}
	for _, option in ipairs(self.options) do
		for _, name in ipairs(option.names) do
			byName[name] = option
		end
	end
	local words, index = splitWords(self.words, byName), 1
	while words[index] do
		local word = words[index]
		local option = byName[word]
		if option == self.helpFlag and option then
			print(help(self))
			os.exit(0)
		elseif option then
			index = parseOption(self, result, option, words, index)
		elseif word:match("^%-.") and not tonumber(word) then
			self:error(("unknown option '%s'"):format(word))
		else
			positionals[#positionals + 1] = word
		end
		index = index + 1
	end
	assignPositionals(self, result, positionals)
	self:addDefaults(result)
	return result
end

function parser:addDefaults(result)
	for _, list in ipairs { self.arguments, self.options } do
		for _, item in ipairs(list) do
			if result[target(item)] == nil and item._default then
				local default = item._default
				result[target(item)] = type(default) == "string" and convert(self, item, default) or default
			end
		end
	end
end

return function(name)
	local self = setmetatable({ name = name or "MoonGen", arguments = {}, options = {}, words = {}, _description = "" }, parser)
	self.helpFlag = self:flag("-h --help", "Show this help message and exit.")
	return self
end
